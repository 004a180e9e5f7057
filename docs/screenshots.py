"""Makes the pictures of the pages that the READMEs show: a short talk, then Chromium at the size of a phone.

Run ``python -m docs.screenshots`` from the checkout; it needs Debian's package chromium and the extra ``test``.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tests.running import RunningServer, until

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
FOLDER = Path(__file__).parent / "pages"
TALKS = {
    "cat": ("うちの猫の名前はミケっていうの", "ミケはかつおぶしが大好きなんだ"),
    "computer": ("きのう富士通のノートPCを12万円で買ったんだ",),
    "trip": ("来週の土曜日に京都へ旅行に行くことにした",),
}


def main() -> None:
    """Write talk.png, memories.png, memory.png and why.png."""
    FOLDER.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp()) / "home"
    with RunningServer(home) as server, sync_playwright() as playwright:
        for session, said in TALKS.items():
            for text in said:
                server.say(text, session)
            server.post(f"/v1/sessions/{session}/close")
        until(lambda: server.get("/v1/memories")[1]["count"] >= len(TALKS), "all is remembered")
        until(lambda: server.get("/v1/memories?q=cat")[1]["count"], "it can be searched")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = browser.new_context(
            viewport={"width": 360, "height": 640}, locale="ja-JP", base_url=server.url, reduced_motion="reduce"
        )
        _take(context.new_page())
        browser.close()
    shutil.rmtree(home.parent)


def _take(page: Any) -> None:
    page.goto("/talk")
    for text in ("やあ", "飼ってるペットの名前おぼえてる？"):
        page.get_by_label("言葉").fill(text)
        page.keyboard.press("Enter")
        page.locator(".exchange", has_text=text).locator(".reply").wait_for()
    page.evaluate("scrollTo(0, 0)")
    _shoot(page, "talk")
    page.locator(".exchange").last.get_by_text("くわしく").first.evaluate("link => link.click()")
    page.wait_for_url("**/turns/*")
    _shoot(page, "why")
    page.goto("/memories")
    _shoot(page, "memories")
    page.get_by_role("link", name="ミケ").first.click()
    _shoot(page, "memory")


def _shoot(page: Page, name: str) -> None:
    page.screenshot(path=FOLDER / f"{name}.png")


if __name__ == "__main__":
    main()
