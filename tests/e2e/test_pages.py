"""The pages over HTTP: every link, both languages, forms with their token, and nothing that could run."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.running import RunningServer, json_of, request, until
from tests.visiting import Form, Page, Visitor, crawl
from tests.wire import send

SECTIONS = ("talk", "memories", "conversations", "scores", "health")
EVIL = "<script>alert(1)</script><b onclick=x>うちの犬の名前はポチ</b>"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that nobody has talked to."""
    with RunningServer(tmp_path_factory.mktemp("empty") / "home") as running:
        yield running
        assert "Traceback" not in running.said(), running.said()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that knows of a cat, of a computer, and of somebody who writes HTML."""
    home = tmp_path_factory.mktemp("told") / "home"
    with RunningServer(home) as running:
        running.say("うちの猫の名前はミケっていうの", "monday")
        running.say(EVIL, "monday")
        running.say("きのう富士通のノートPCを12万円で買ったんだ", "tuesday")
        running.post("/v1/sessions/monday/close")
        running.post("/v1/sessions/tuesday/close")
        running.settle()
        running.say("飼ってるペットの名前おぼえてる？", "wednesday")
        yield running
        assert "Traceback" not in running.said(), running.said()


@pytest.fixture
def visitor(told: RunningServer) -> Visitor:
    return Visitor(told.url)


def memory_about(server: RunningServer, word: str) -> dict[str, Any]:
    listed = server.get("/v1/memories?limit=100")[1]["memories"]
    return next(memory for memory in listed if word in memory["summary"])


# --- every page ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["ja", "en"])
def test_every_link_of_an_empty_store_leads_somewhere(empty: RunningServer, language: str) -> None:
    pages = crawl(Visitor(empty.url, language))
    assert {path: page.status for path, page in pages.items() if page.status != 200} == {}
    assert {f"/{section}" for section in SECTIONS} <= set(pages)


def test_every_link_of_a_full_store_leads_somewhere_and_stays_here(told: RunningServer) -> None:
    pages = crawl(Visitor(told.url))
    assert {path: page.status for path, page in pages.items() if page.status != 200} == {}
    for path, page in pages.items():
        if page.headers.get_content_type() == "text/html":
            assert all(address.startswith(("/", "#")) for address in page.read.addresses), path
            assert not any(address.startswith("//") for address in page.read.addresses), path


def test_no_page_runs_or_styles_anything_inline_and_its_policy_says_so(told: RunningServer) -> None:
    for path, page in crawl(Visitor(told.url)).items():
        if page.headers.get_content_type() == "text/html":
            assert page.read.inline == [], path
            policy = page.headers["Content-Security-Policy"]
            assert "default-src 'self'" in policy
            assert "unsafe" not in policy
            assert page.headers["X-Content-Type-Options"] == "nosniff"
            assert page.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("asked", "language"), [(None, "ja"), ("ja", "ja"), ("en-US,en;q=0.9", "en"), ("fr", "ja"), ("ja;q=0.5,en", "en")]
)
def test_a_page_speaks_the_browsers_language_and_japanese_where_it_says_nothing(
    told: RunningServer, asked: str | None, language: str
) -> None:
    page = Visitor(told.url, asked).get("/memories")
    assert page.read.language == language
    assert ("記憶" in page.text, "Memories" in page.text) == (language == "ja", language == "en")


def test_what_is_not_there_is_a_page_for_a_browser_and_a_problem_for_a_robot(told: RunningServer) -> None:
    missing = ("/nothing", "/memories/mem_1", "/conversations/999", "/turns/999", "/turns/x", "/conversations/x")
    for path in missing:
        page = Visitor(told.url).get(path)
        assert (page.status, page.headers.get_content_type()) == (404, "text/html"), path
        assert "見つかりませんでした" in page.text
        assert page.read.links
    assert send(told.url, "GET", "/nothing").headers["content-type"] == "application/problem+json"
    api = send(told.url, "GET", "/v1/nothing", accept="text/html")
    assert (api.status, api.headers["content-type"]) == (404, "application/problem+json")


# --- what they show --------------------------------------------------------------------------------------------------


def test_what_was_said_is_shown_as_text_only(visitor: Visitor, told: RunningServer) -> None:
    memory = memory_about(told, "script")
    own = f"/memories/{memory['memory_id']}"
    for path in (own, "/memories", "/conversations/1", "/memories?q=%3Cscript%3E&since=%3Cb%3E"):
        page = visitor.get(path)
        assert "<script>alert" not in page.html
        assert "<b onclick" not in page.html
    assert "<script>alert(1)</script>" in visitor.get("/conversations/1").text


def test_a_search_finds_what_the_robot_would_find(visitor: Visitor, told: RunningServer) -> None:
    page = visitor.get("/memories?q=%E3%83%9A%E3%83%83%E3%83%88%E3%81%AE%E5%90%8D%E5%89%8D")
    found = [link for link in page.read.links if link.startswith("/memories/mem_")]
    robot = told.get("/v1/memories?q=%E3%83%9A%E3%83%83%E3%83%88%E3%81%AE%E5%90%8D%E5%89%8D&limit=20")[1]["memories"]
    assert found == [f"/memories/{memory['memory_id']}" for memory in robot]


def test_memories_are_narrowed_by_type_name_date_and_status(visitor: Visitor, told: RunningServer) -> None:
    cat = f"/memories/{memory_about(told, 'ミケ')['memory_id']}"
    there = ("type=episode", "entity=%E3%83%9F%E3%82%B1", "since=2020-01-01")
    for query in (*there, "type=preference", "entity=nobody", "status=forgotten", "until=2020-01-01"):
        links = visitor.get(f"/memories?{query}").read.links
        assert (cat in links) == (query in there), query
    wrong = visitor.get("/memories?since=yesterday")
    assert wrong.status == 400
    assert "yesterday" in wrong.text


def test_a_memory_shows_its_words_and_when_it_was_recalled(visitor: Visitor, told: RunningServer) -> None:
    memory = memory_about(told, "ミケ")
    page = visitor.get(f"/memories/{memory['memory_id']}")
    assert "うちの猫の名前はミケっていうの" in page.text
    assert "飼ってるペットの名前おぼえてる？" in page.text
    turn = memory["source_turn_ids"][0]
    assert f"/conversations/1?turn={turn}#turn-{turn}" in page.read.links


def test_a_turn_shows_query_hits_scores_and_milliseconds(visitor: Visitor) -> None:
    page = visitor.get("/turns/4")
    for word in ("モデルが記憶を探し", "類似度", "順位の点", " ms", "検索"):
        assert word in page.text
    asked = visitor.get("/turns/1?memory=" + next(link for link in page.read.links if "mem_" in link).split("/")[-1])
    assert "Nothing was searched in this turn." in asked.text


def test_skipped_and_waiting_turns_can_be_seen_and_tried_again(visitor: Visitor) -> None:
    page = visitor.get("/memories/waiting")
    assert "飼ってるペットの名前おぼえてる？" in page.text
    after = visitor.send(page, "/memories/waiting")
    assert "もう一度ためしています" in after.text


# --- what they change ------------------------------------------------------------------------------------------------


def test_a_memory_is_corrected_forgotten_and_brought_back(visitor: Visitor, told: RunningServer) -> None:
    first = memory_about(told, "ノートPC")["memory_id"]
    page = visitor.get(f"/memories/{first}")
    same = visitor.send(page, "/edit")
    assert "何も変わっていません" in same.text
    corrected = visitor.send(page, "/edit", summary="ノートPCは13万円だった。", occurred_to="2026-12-31")
    assert "直しました" in corrected.text
    assert f"/memories/{first}" in corrected.read.links, "its history"
    assert "新しい記憶" in visitor.get(f"/memories/{first}").text
    forgotten = visitor.send(corrected, "/forget")
    assert "忘れました" in forgotten.text
    assert "13万円" not in json.dumps(told.get("/v1/memories?limit=100")[1], ensure_ascii=False)
    back = visitor.send(forgotten, "/restore")
    assert "思い出しました" in back.text
    gone = visitor.send(visitor.get(back.url.removeprefix(told.url)), "/forget", now="on", turns="on")
    assert "完全に消しました" in gone.text
    assert visitor.get(f"/memories/{first}").status == 404


def test_names_are_joined_and_parted(visitor: Visitor) -> None:
    page = visitor.get("/memories/names")
    joined = visitor.send(page, "/memories/names", name="富士通", other="Fujitsu")
    assert "Fujitsu = 富士通" in joined.text
    wrong = visitor.send(page, "/memories/names", name="a", other="A")
    assert wrong.status == 400
    token = joined.read.forms[0].fields
    parted = visitor.post("/memories/names", {**token, "remove": ""})
    assert "Fujitsu = 富士通" not in parted.text


def asked_to_forget(visitor: Visitor) -> Form | None:
    forms = visitor.get("/memories/requests").read.forms
    return next((form for form in forms if "/requests/" in form.action), None)


def test_a_request_to_forget_is_dropped_or_done_by_a_person(visitor: Visitor, told: RunningServer) -> None:
    told.say("うちの金魚の名前はキンちゃん", "fish")
    told.post("/v1/sessions/fish/close")
    until(lambda: "キンちゃん" in visitor.get("/memories").text, "it is remembered")
    for button in ({"drop": ""}, {}):
        told.say("金魚のこと忘れて", "friday")
        told.post("/v1/sessions/friday/close")
        form = until(lambda: asked_to_forget(visitor), "the request is noted")
        assert form.fields["memory_id"].startswith("mem_")
        fields = {name: value for name, value in form.fields.items() if name != "turns"}
        after = visitor.post(form.action, {**fields, **button})
        assert "頼まれていることはありません" in after.text
    assert not any("キンちゃん" in memory["summary"] for memory in told.get("/v1/memories?limit=100")[1]["memories"])


def test_everything_goes_out_as_a_file_and_comes_back(visitor: Visitor, told: RunningServer) -> None:
    file = visitor.get("/memories/export")
    assert file.headers["Content-Disposition"].startswith("attachment")
    page = visitor.get("/memories/transfer")
    after = visitor.send(page, "/memories/transfer", file=file.html.encode() + b"no JSON\n")
    assert "新しい会話 0 回" in after.text
    assert "JSON として読めません。" in after.text
    assert visitor.send(page, "/memories/transfer", file=b"").status == 400


def test_a_large_file_is_taken_though_other_forms_are_small(visitor: Visitor) -> None:
    page = visitor.get("/memories/transfer")
    line = json.dumps({"session": "long", "role": "user", "text": "あ" * 2_000, "at": "2020-01-01"}).encode()
    assert visitor.send(page, "/memories/transfer", file=b"\n" * 1_500_000 + line).status == 200
    assert visitor.send(visitor.get("/memories/names"), "/memories/names", name="あ" * 800_000).status == 413


# --- talk ------------------------------------------------------------------------------------------------------------


def test_somebody_without_a_robot_talks_and_sees_what_was_looked_up(visitor: Visitor, told: RunningServer) -> None:
    page = visitor.get("/talk")
    small = visitor.send(page, "/talk", text="やあ")
    assert "探さずに答えた" in small.text
    found = visitor.send(small, "/talk", text="飼ってるペットの名前おぼえてる？")
    for word in ("記憶を探した", "ミケ", "類似度", " ms"):
        assert word in found.text
    assert 'data-emotion="happy"' in found.html
    assert visitor.send(found, "/talk", text=" ").status == 400
    ended = visitor.send(found, "/talk/end")
    assert "会話を終えました" in ended.text
    assert "探さずに答えた" not in ended.text
    assert any(row["session_id"] == "browser" and row["ended_at"] for row in told.get("/v1/sessions")[1]["sessions"])
    assert visitor.send(ended, "/talk/end").status == 200


def test_a_script_gets_the_new_exchange_alone_and_a_repeated_key_no_second_turn(told: RunningServer) -> None:
    visitor = Visitor(told.url, **{"X-Part": "1"})
    page = visitor.get("/talk")
    first, second = (visitor.send(page, "/talk", text="こんばんは", key="one") for _ in range(2))
    assert "<html" not in first.html
    assert 'data-action="' in first.html
    assert first.html == second.html


# --- health ----------------------------------------------------------------------------------------------------------


def test_health_says_what_runs_and_what_waits_and_no_secret(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("health") / "home"
    settings = {"chat_base_url": "http://127.0.0.1:9/v1", "chat_api_key": "sk-secret", "chat_model": "qwen-x"}
    with RunningServer(home, **settings) as server:
        visitor = Visitor(server.url)
        assert "うまく動いています" in visitor.get("/health").text
        server.say("聞こえる？")
        text = visitor.get("/health").text
        for word in ("qwen-x, http://127.0.0.1:9/v1", "1 回、モデルが時間内に答えませんでした", "記憶になる前の会話1"):
            assert word in text
        checked = visitor.send(visitor.get("/health"), "/health")
        for word in ("chat model失敗", "databaseよい"):
            assert word in checked.text
        for path, page in [*crawl(visitor).items(), ("checked", checked)]:
            assert "sk-secret" not in page.html, path


# --- who may ---------------------------------------------------------------------------------------------------------


def test_no_form_works_without_the_token_of_its_page(told: RunningServer) -> None:
    forms = {
        form.action for page in crawl(Visitor(told.url)).values() for form in page.read.forms if form.method == "post"
    }
    assert len(forms) >= 5
    for action in forms:
        stranger = Visitor(told.url)
        assert stranger.post(action, {}).status == 403, action
        stranger.get("/memories/names")
        assert stranger.post(action, {"csrf_token": "guessed"}).status == 403, action


def test_cookies_cannot_be_read_by_scripts_nor_sent_by_other_sites(told: RunningServer) -> None:
    cookie = Visitor(told.url).get("/memories/names").headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


@pytest.mark.parametrize("host", ["rebound.example.com", "rebound.example.com:8765", "evil.localhost.example"])
def test_a_name_that_anybody_could_point_here_is_not_this_machine(told: RunningServer, host: str) -> None:
    assert send(told.url, "GET", "/v1/memories", host=host).status == 401
    assert send(told.url, "GET", "/memories", host=host).status == 303


@pytest.mark.parametrize(
    "host", ["localhost:8765", "127.0.0.1", "[::1]:8765", "robot", "kitchen.local", "a.localhost", "["]
)
def test_names_of_this_machine_and_its_network_are(told: RunningServer, host: str) -> None:
    assert send(told.url, "GET", "/v1/memories", host=host).status == 200


def test_from_elsewhere_a_token_opens_the_pages_of_its_owner_alone(
    tmp_path_factory: pytest.TempPathFactory, lan: str
) -> None:
    home = tmp_path_factory.mktemp("lan") / "home"
    tokens = {name: json_of(home, "devices", "add", name, "--owner", name)["token"] for name in ("alice", "bob")}
    with RunningServer(home, "--host", "0.0.0.0") as server:
        for name in tokens:
            bearer = {"Authorization": f"Bearer {tokens[name]}"}
            said = {"text": f"{name}の猫の名前はミケっていうの", "session_id": "s"}
            assert request("POST", server.url + "/v1/turns", said, bearer)[0] == 200
            assert request("POST", server.url + "/v1/sessions/s/close", {}, bearer)[0] == 200
            mine = Visitor(server.url, Authorization=bearer["Authorization"])
            until(lambda mine=mine: "ミケ" in mine.get("/memories").text, "it is remembered")
        url = server.url.replace("127.0.0.1", lan)
        visitor = Visitor(url)
        page = visitor.get("/memories")
        assert page.url == f"{url}/login"
        assert visitor.get("/static/pages.css").status == 200
        wrong = visitor.send(page, "/login", token="sm_wrong")
        assert (wrong.status, "使えません" in wrong.text) == (401, True)
        assert visitor.send(page, "/login", token=tokens["alice"]).status == 200
        mine = visitor.get("/memories").text
        assert "alice" in mine
        assert "bob" not in mine.replace("alice さん", "")
        _others_are_hidden(visitor, server, tokens["bob"])
        assert Visitor(url, follow=False).post("/logout", {}).status == 401
        left = visitor.send(visitor.get("/"), "/logout")
        assert left.url == f"{url}/login"
        assert visitor.get("/memories").url == f"{url}/login"
        cookie = {"Cookie": f"stackmem_token={tokens['alice']}"}
        assert request("GET", f"{url}/v1/memories", headers=cookie)[0] == 401, "the API takes no cookie"


def _others_are_hidden(visitor: Visitor, server: RunningServer, token: str) -> None:
    """Check that nothing of another owner is shown or changed, under whatever address."""
    theirs = request("GET", server.url + "/v1/memories", headers={"Authorization": f"Bearer {token}"})[1]["memories"][0]
    form: Page = visitor.get("/memories/names")
    csrf = {"csrf_token": form.read.forms[-1].fields["csrf_token"]}
    for path in (f"/memories/{theirs['memory_id']}", f"/turns/{theirs['source_turn_ids'][0]}", "/conversations/2"):
        assert visitor.get(path).status == 404, path
    for action in ("edit", "forget", "restore"):
        sent = {**csrf, "summary": "x", "topic": "x", "memory_type": "episode", "entities": ""}
        assert visitor.post(f"/memories/{theirs['memory_id']}/{action}", sent).status == 404, action
    assert theirs["memory_id"] not in visitor.get("/memories/export").html


def test_a_page_says_when_something_is_still_being_remembered(told: RunningServer) -> None:
    told.say("うちの亀の名前はカメキチ", "turtle")
    visitor = Visitor(told.url)
    path = next(link for link in visitor.get("/conversations").read.links if link.startswith("/conversations/"))
    assert "data-live" in visitor.get(path).html
    told.post("/v1/sessions/turtle/close")
    until(lambda: "data-live" not in visitor.get(path).html, "the conversation is remembered")
