"""Asking back, by rules."""

import pytest

from evals.ask_back import asks_back

PCS = ["富士通のPCを買った 富士通いいね", "ThinkPadを会社でもらった いいね"]
TANAKAS = ["サッカー部の田中がけがした 大丈夫？", "バイト先の田中さんが結婚する おめでとう"]


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        ("富士通のと、ThinkPadのと、どっちの話？", PCS),
        ("富士通のPC？それともThinkPad？", PCS),
        ("富士通のと、シンクパッドのと、どちらですか。", PCS),
        ("ｔｈｉｎｋｐａｄかな、富士通かな？", PCS),
        ("サッカー部の田中？バイト先の田中さん？", TANAKAS),
        ("田中って二人いるよね。どの田中のこと？", TANAKAS),
        ("バイト先の田中さんとサッカー部の田中がいるけど、誰のこと？", TANAKAS),
        ("Which one do you mean, the Fujitsu or the ThinkPad?", PCS),
        ("富士通と、ThinkPadがあるね。どれのことかな。", PCS),
    ],
)
def test_a_question_for_which_one_is_asking_back(reply: str, meant: list[str]) -> None:
    assert asks_back(reply, meant)


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        ("富士通のPCだね。", PCS),
        ("富士通のPCとThinkPadがあるね。", PCS),  # names both and asks nothing
        ("富士通のPCだね。調子はどう？", PCS),
        ("覚えてないな。教えてくれる？", PCS),
        ("サッカー部の田中だよね？", TANAKAS),
        ("どっちもいいね。", PCS),
        ("", PCS),
        ("そうなの？", []),
    ],
)
def test_anything_else_is_not(reply: str, meant: list[str]) -> None:
    assert not asks_back(reply, meant)
