"""The pages in Debian's Chromium, as a person uses them: on a phone and a desk, in Japanese, by keyboard too."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.running import RunningServer, until

SIZES = {"phone": {"width": 360, "height": 740}, "desk": {"width": 1280, "height": 800}}
PATIENCE_MS = 30_000
SERIOUS = ("serious", "critical")

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that knows of a cat, a computer and a trip."""
    with RunningServer(tmp_path_factory.mktemp("browser") / "home") as running:
        running.say("うちの猫の名前はミケっていうの", "monday")
        running.say("きのう富士通のノートPCを12万円で買ったんだ", "monday")
        running.say("来週の土曜日に京都へ旅行に行くことにした", "monday")
        running.post("/v1/sessions/monday/close")
        until(lambda: running.get("/v1/memories")[1]["count"] >= 3, "all is remembered")
        until(lambda: running.get("/v1/memories?q=cat")[1]["count"], "it can be searched")
        yield running
        assert "Traceback" not in running.said(), running.said()


@pytest.fixture
def opened(chromium: Browser, told: RunningServer) -> Iterator[Open]:
    """Open pages of the server; a page that logs an error, breaks its policy or asks another host fails the test."""
    contexts, faults = [], list[str]()

    def open_(path: str, size: str = "phone", **options: Any) -> Page:
        context = chromium.new_context(viewport=SIZES[size], locale="ja-JP", base_url=told.url, **options)  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
        page.on("request", lambda asked: None if asked.url.startswith(told.url) else faults.append(asked.url))
        page.goto(path)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert faults == []


def pages_of(told: RunningServer) -> list[str]:
    memory = told.get("/v1/memories")[1]["memories"][0]
    return [
        *("/", "/talk", "/memories", "/memories?q=%E7%8C%AB&type=episode", f"/memories/{memory['memory_id']}"),
        *("/memories/waiting", "/memories/requests", "/memories/names", "/memories/transfer", "/conversations"),
        *("/conversations/1", "/turns/1", "/scores", "/scores/turns", "/scores/marks", "/scores/runs", "/health"),
        "/login",
    ]


@pytest.mark.parametrize(("size", "scheme"), [("phone", "light"), ("desk", "dark")])
def test_nothing_is_cut_and_axe_finds_nothing_serious(
    opened: Open, told: RunningServer, size: str, scheme: str
) -> None:
    page = opened("/", size, color_scheme=scheme)
    axe = Axe()
    for path in pages_of(told):
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        found = axe.run(page).response["violations"]
        serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in SERIOUS]
        assert serious == [], path


@pytest.mark.parametrize("size", SIZES)
def test_somebody_talks_to_the_face_and_sees_why_it_answered_so(opened: Open, size: str) -> None:
    page = opened("/talk", size)
    face = page.locator("#face")
    words = page.get_by_label("言葉")
    words.fill("飼ってるペットの名前おぼえてる？")
    words.press("Enter")
    reply = page.locator(".exchange").last
    expect(reply.locator(".reply")).to_contain_text("ミケ")
    expect(face).to_have_attribute("data-emotion", "happy")
    expect(face).to_have_attribute("data-action", "nod")
    assert page.evaluate("getComputedStyle(document.querySelector('#face .head')).animationName") == "nod"
    assert page.evaluate("getComputedStyle(document.querySelector('#face .mask.for-happy')).display") != "none"
    expect(words).to_be_focused()
    expect(words).to_have_value("")
    reply.locator("summary").click()
    expect(reply).to_contain_text("類似度")
    page.get_by_role("button", name="会話を終える").click()
    expect(page.get_by_role("status")).to_contain_text("会話を終えました")


def test_a_talk_that_gets_no_answer_says_so_and_keeps_the_words(opened: Open) -> None:
    page = opened("/talk")
    page.route("**/talk", lambda route: route.fulfill(content_type="text/html", body="<p>x</p>"))
    page.get_by_label("言葉").fill("聞こえる？")
    page.evaluate("document.getElementById('talk').requestSubmit()")
    expect(page.get_by_role("alert")).to_contain_text("もう一度送ってください")
    expect(page.get_by_label("言葉")).to_have_value("聞こえる？")


def test_a_memory_is_found_corrected_forgotten_and_brought_back(opened: Open) -> None:
    page = opened("/memories")
    page.get_by_role("searchbox").fill("ノートPCはいくら")
    page.get_by_role("button", name="探す").click()
    page.locator(".memory a").first.click()
    expect(page.get_by_text("きのう富士通のノートPCを12万円で買ったんだ").first).to_be_visible()
    page.get_by_text("直す", exact=True).click()
    page.get_by_label("内容").fill("ユーザーは富士通のノートPCを13万円で買った。")
    page.get_by_role("button", name="直した内容で覚える").click()
    expect(page.locator(".summary")).to_have_text("ユーザーは富士通のノートPCを13万円で買った。")
    page.locator("summary").filter(has_text="忘れさせる").click()
    page.get_by_role("button", name="忘れさせる").click()
    expect(page.get_by_role("status").first).to_contain_text("元に戻せます")
    page.get_by_role("button", name="思い出させる").click()
    expect(page.locator("dl .badge.active")).to_have_text("覚えている")


def test_a_turn_is_marked_from_its_conversation(opened: Open, tmp_path: Path) -> None:
    page = opened("/conversations", "desk")
    page.locator(".rows a").last.click()
    page.locator(".turn").first.get_by_text("くわしく").click()
    page.get_by_label("探すべきだった").check()
    page.get_by_role("button", name="印をつける").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="シナリオとして書き出す").click()
    download.value.save_as(tmp_path / "marked.yaml")
    assert "tags:\n- recall" in (tmp_path / "marked.yaml").read_text("utf-8")


def test_what_is_being_remembered_appears_without_loading_the_page_again(opened: Open, told: RunningServer) -> None:
    told.say("うちの亀の名前はカメキチ", "turtle")
    session = next(row for row in told.get("/v1/sessions")[1]["sessions"] if row["session_id"] == "turtle")
    assert session["ended_at"] is None
    page = opened("/conversations")
    page.locator(".rows a").first.click()
    expect(page.locator("#live[data-live]")).to_be_visible()
    page.evaluate("window.stayed = true")
    told.post("/v1/sessions/turtle/close")
    expect(page.get_by_text("記憶:").first).to_be_visible()
    expect(page.locator("#live[data-live]")).to_have_count(0)
    assert page.evaluate("window.stayed")


def test_a_hidden_page_asks_for_nothing(opened: Open, told: RunningServer) -> None:
    told.say("まだ覚えないで", "hidden")
    page = opened("/memories/waiting")
    expect(page.locator("#live[data-live]")).to_be_visible()
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true, configurable: true })")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2500)
    assert asked == []
    with page.expect_request("**/memories/waiting"):
        page.evaluate("Object.defineProperty(document, 'hidden', { get: () => false })")


def test_the_keyboard_reaches_the_content_and_all_sections(opened: Open) -> None:
    page = opened("/memories", "desk")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="本文へ")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.goto("/memories")
    names = []
    for _ in range(7):
        page.keyboard.press("Tab")
        names.append(page.evaluate("document.activeElement.textContent.trim()"))
    assert names[2:] == ["話す", "記憶", "会話", "成績", "調子"]


def test_everything_but_the_face_works_without_scripts(opened: Open) -> None:
    page = opened("/talk", java_script_enabled=False)
    page.get_by_label("言葉").fill("やあ")
    page.get_by_role("button", name="話す").click()
    expect(page.locator(".exchange").last).to_contain_text("やあ")


def test_a_script_in_a_memory_stays_words(opened: Open, told: RunningServer) -> None:
    evil = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>うちの鳥はピーコ"
    told.say(evil, "evil")
    page = opened("/conversations")
    page.locator(".rows a").first.click()
    expect(page.locator(".turn").first).to_contain_text("document.title")
    assert "hacked" not in page.title()
    assert json.dumps(evil)[1:20] in json.dumps(page.locator(".turn").first.text_content())
