"""20,000 turns through one process: whether its memory is flat after warm-up, and no file or thread is lost.

Run ``python -m benchmarks.soak`` from the checkout, on Linux; ``--turns 2000`` for a short one. Four robots talk to a
real ``stackmem up`` with a scripted model, in sessions of 20 turns, with nothing worth remembering in them.
"""

import json
import sys
import tempfile
from pathlib import Path

import click

from benchmarks._robots import drained, model, process, table, talk
from tests.running import RunningServer

STEPS = 20
WARM_UP = 5  # of the steps
NOTHING = '{"segments": [{"turn_ids": [1], "keep": false}]}'


@click.command()
@click.option("--turns", type=click.IntRange(STEPS), default=20_000, show_default=True)
@click.option("--robots", type=click.IntRange(1), default=4, show_default=True)
@click.option("--growth", default=5.0, show_default=True, help="Per cent of memory that may be gained after warm-up.")
@click.option("--json", "json_file", type=click.Path(), help="Write the figures there too.")
def main(turns: int, robots: int, growth: float, json_file: str | None) -> None:
    """Print memory, files and threads at every step, and whether they stay."""
    steps = []
    with tempfile.TemporaryDirectory(prefix="stackmem-soak-") as folder, model(0.0, NOTHING) as address:
        home = Path(folder) / "home"
        home.mkdir()
        with RunningServer(home, chat_base_url=address, chat_model="scripted", judge_calls_per_day="0") as server:
            for step in range(1, STEPS + 1):
                talked = talk(int(server.url.rsplit(":", 1)[1]), robots, 10**9, turns=turns // STEPS)
                drained(server.url)
                now = process(server.process.pid) | talked.summary()
                steps.append(now)
                click.echo(table(f"after {step * (turns // STEPS)} turns", now))
    warm, last = steps[WARM_UP - 1], steps[-1]
    gained = 100 * (last["resident MB"] / warm["resident MB"] - 1)
    met = {
        f"memory after warm-up {gained:+.1f} % (at most {growth:g} %)": gained <= growth,
        f"files {warm['files']} → {last['files']}": last["files"] <= warm["files"] + 2,
        f"threads {warm['threads']} → {last['threads']}": last["threads"] <= warm["threads"] + 2,
        f"errors {sum(step['errors'] for step in steps):.0f}": not any(step["errors"] for step in steps),
    }
    click.echo("\n".join(f"  {'ok ' if good else 'NOT'} {goal}" for goal, good in met.items()))
    if json_file:
        Path(json_file).write_text(json.dumps(steps, indent=2), encoding="utf-8")
    sys.exit(not all(met.values()))


if __name__ == "__main__":
    main()
