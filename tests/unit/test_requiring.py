"""The plugin that lets no test be skipped in CI."""

import pytest

from tests.requiring import MAY_BE_SKIPPED, SWITCH

pytest_plugins = ["pytester"]


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(f"import pytest\n{source}")
    return pytester.runpytest_inprocess("-p", "tests.requiring", "-p", "no:cacheprovider", *options)


SKIPS = """
def test_that_needs_something():
    pytest.skip("no Redis at 127.0.0.1:6379")

@pytest.mark.skipif(True, reason="not here")
def test_that_is_marked():
    pass

def test_that_runs():
    pass
"""


def test_a_skip_is_a_skip_where_nothing_is_required(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    run(pytester, SKIPS).assert_outcomes(passed=1, skipped=2)


def test_a_skip_fails_and_says_why_where_all_is_required(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    result = run(pytester, SKIPS)
    result.assert_outcomes(passed=1, failed=1, errors=1)  # a mark skips in the setup
    result.stdout.fnmatch_lines(["*was not run. Skipped: no Redis at 127.0.0.1:6379"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


SKIPPED_MODULE = 'pytest.importorskip("no_such_module_of_ours")'


def test_a_module_that_skips_itself_is_an_error(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    result = run(pytester, SKIPPED_MODULE)
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_nothing_is_skipped_in_another_process_either(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    pytester.makepyfile(test_other=f"import pytest\n{SKIPPED_MODULE}")
    result = run(pytester, SKIPS, "--numprocesses=1", "--continue-on-collection-errors")
    result.assert_outcomes(passed=1, failed=1, errors=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_known_failure_is_no_skip(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    run(pytester, "@pytest.mark.xfail\ndef test_x():\n    assert False").assert_outcomes(xfailed=1)


@pytest.mark.parametrize(("value", "wanted"), [("", {"skipped": 1}), ("somewhere", {"failed": 1})])
@pytest.mark.parametrize("marker", MAY_BE_SKIPPED)
def test_only_what_no_package_holds_may_be_missing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, marker: str, value: str, wanted: dict[str, int]
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setenv(MAY_BE_SKIPPED[marker], value)
    run(pytester, f"@pytest.mark.{marker}\ndef test_x():\n    pytest.skip('none')").assert_outcomes(**wanted)
