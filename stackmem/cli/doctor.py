"""``stackmem doctor``."""

from typing import Any

import click

from stackmem.bootstrap import Runtime, build
from stackmem.cli.common import Server, json_option, print_json, store, with_server_or_own
from stackmem.cli.progress import follow, progress_bar
from stackmem.clock import SystemClock
from stackmem.config import Settings, load_settings
from stackmem.doctor import examine
from stackmem.drift import differs, sentence
from stackmem.exceptions import Busy
from stackmem.jobs import check_job
from stackmem.work import is_indexed

PATIENCE = 300  # seconds: a model may be slow
MARKS = {"ok": "ok", "note": "note", "failed": "FAILED"}


@click.command()
@click.option("--deep", is_flag=True, help="Compare every point of the index with the database.")
@click.option("--mend", is_flag=True, help="With --deep: mend what differs; the database is right.")
@json_option
def doctor(deep: bool, mend: bool, as_json: bool) -> None:
    """Try everything that is configured, say what to do.

    The exit code is 1 where something failed, or differs and was not mended. A model is asked for one word.
    """
    if mend and not deep:
        raise click.UsageError("--mend goes with --deep.")
    settings = load_settings()
    found: dict[str, Any] = {"checks": _checks(settings, deep)}
    if deep:
        found["drift"] = _drift(settings, mend) | {"mended": mend}
    if as_json:
        print_json(found)
    else:
        _show(found)
    if (deep and not mend and differs(found["drift"])) or any(check["state"] == "failed" for check in found["checks"]):
        raise SystemExit(1)


def _checks(settings: Settings, deep: bool) -> list[dict[str, Any]]:
    def ask(server: Server) -> list[dict[str, Any]]:
        return server.call("GET", "/v1/admin/doctor", "home", timeout_s=PATIENCE)["checks"]  # type: ignore[no-any-return]

    try:
        return with_server_or_own(ask, examine, settings, rebuild=deep)  # type: ignore[no-any-return]
    except Busy:  # a web process of `waitress-serve` or gunicorn, which cannot be asked: all but its index is tried
        with store(settings) as database:
            return examine(build(settings, owns_index=False, database=database))


def _drift(settings: Settings, mend: bool) -> dict[str, int]:
    """Have the owner of the index compare it, wait for that, and return the counts."""
    with progress_bar("Comparing") as bar:

        def followed(job_id: int) -> dict[str, int]:
            job = follow(job_id, bar, lambda: not mend or is_indexed(), "The comparison failed")
            return dict(job.arguments["found"])

        def ask(server: Server) -> dict[str, int]:
            job_id = server.call("POST", "/v1/admin/check", "home", body={"mend": mend})["job_id"]
            with store(settings):
                return followed(job_id)

        def alone(runtime: Runtime) -> dict[str, int]:
            job = check_job(mend, SystemClock().now())
            runtime.work.rebuild(job.id)
            return followed(job.id)

        return with_server_or_own(ask, alone, settings)  # type: ignore[no-any-return]


def _show(found: dict[str, Any]) -> None:
    for check in found["checks"]:
        click.echo(f"{MARKS[check['state']]:7}{check['name']:14}{check['sentence']}")
    if "drift" in found:
        mended = found["drift"]["mended"]
        state = MARKS["failed" if differs(found["drift"]) and not mended else "ok"]
        click.echo(f"{state:7}{'comparison':14}{sentence(found['drift'], mended=mended)}")
