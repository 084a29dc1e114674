"""``emq-ops demo``."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path
from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.demo.stage import QUEUES, Stage, feed
from emq_ops.cli.demo.summary import summary
from emq_ops.cli.demo.view import DemoTotals, DemoView, rows
from emq_ops.cli.options import new_app
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.server import Server, connect

app = new_app()
DRAW_SECONDS = 0.5
LINE_SECONDS = 3.0
START_SECONDS = 60.0


@app.command()
def demo(
    ctx: typer.Context,
    seconds: Annotated[float, typer.Option(help="How long jobs keep coming.", min=5, max=600)] = 20.0,
    folder: Annotated[Path, typer.Option(help="Made anew; holds server, state, archive and logs.")] = Path(".emq/demo"),
    seed: Annotated[int, typer.Option(help="Which jobs come.")] = 7,
) -> None:
    """Show it all in half a minute: workers that succeed, fail, hang and are killed, the daemon at work.

    Examples:

      emq-ops demo

      emq-ops demo --seconds 10 --seed 7
    """
    context = CommandContext.of(ctx)
    files = context.options.config_files()
    stage = Stage(folder.absolute(), files[0] if files else None)
    view = DemoView()
    # Our own connection keeps the embedded server for the whole demo.
    with connect("embedded", base_dir=stage.folder) as server:
        try:
            with view:
                tally = _play(stage, server, view, seconds, random.Random(seed))
        finally:
            stage.end()
        tally.take(stage.events(0)[0][tally.taken :])
        for line in summary(stage, server, tally):
            view.say(line)


def _play(stage: Stage, server: Server, view: DemoView, seconds: float, chance: random.Random) -> DemoTotals:
    tally, offset = DemoTotals(), 0
    feed(server, 60, chance)
    view.say("starting the daemon on the config, and two workers for each queue ...")
    stage.start_daemon()
    _await_daemon(stage)  # jobs that die between its plan and its apply would make the plan stale
    for queue in QUEUES * 2:
        stage.start_worker(queue)
    started = time.monotonic()
    kills = [(seconds * 0.35, "orders"), (seconds * 0.55, "mail"), (seconds * 0.75, "orders")]
    next_feed, next_draw = 1.0, 0.0
    # A few seconds longer than jobs come, so that what was in flight is swept and what is old is shipped.
    while (now := time.monotonic() - started) < seconds + 6:
        _require_daemon(stage)
        if now >= next_feed and now < seconds:
            feed(server, 12, chance)
            next_feed = now + 1.0
        if kills and now >= kills[0][0]:
            _, queue = kills.pop(0)
            view.say(f"kill -9 {stage.kill_worker(queue)}: a worker of {queue}, with jobs in hand")
            stage.start_worker(queue)
        if now >= next_draw:
            with contextlib.suppress(EmqError, OSError):
                events, offset = stage.events(offset)
                tally.take(events)
                view.draw(now, rows(server, QUEUES, tally), tally)
            next_draw = now + (DRAW_SECONDS if view.moves else LINE_SECONDS)
        time.sleep(0.05)
    return tally


def _require_daemon(stage: Stage) -> None:
    """Raises EmqError where the daemon has ended."""
    if stage.daemon is not None and stage.daemon.poll() is not None:
        last = stage.log.read_text("utf-8", "replace").strip().splitlines()[-1:]
        raise EmqError(f"the daemon ended: {' '.join(last)}", where=str(stage.log), fix="see its log")


def _await_daemon(stage: Stage) -> None:
    """Returns once the daemon runs what it applied. Raises EmqError where it ended, or does not start in time."""
    until = time.monotonic() + START_SECONDS
    while not any(event.get("event") == "daemon_started" for event in stage.events(0)[0]):
        _require_daemon(stage)
        if time.monotonic() > until:
            raise EmqError("the daemon does not start", where=str(stage.log), fix="see its log")
        time.sleep(0.05)
