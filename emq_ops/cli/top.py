"""``emq-ops top``: queues live, on the whole screen."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated

import typer

from emq_ops.cli.audit_acting import protected
from emq_ops.cli.context import CommandContext
from emq_ops.cli.garbage import collect_for_long
from emq_ops.cli.options import SomeQueues, new_app
from emq_ops.cli.queue import ls_once, protected_of, streams_of
from emq_ops.cli.queues import pick
from emq_ops.cli.top_screen import Question, Screen
from emq_ops.cli.values import duration_ms
from emq_ops.ledger.acts import REQUEUE
from emq_ops.ledger.ledger import Ledger
from emq_ops.overview.watch import Watch, WatchedQueue
from emq_ops.passes.acts.act import act
from emq_ops.passes.acts.declared import PAUSE, RESUME, PausePolicy
from emq_ops.passes.acts.lives import order_of
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.passes.acts.targets import choose
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.frame import run_pass
from emq_ops.passes.lease.kept import NoLease
from emq_ops.policy.secrets import hide
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.reads import is_paused

app = new_app()
DRAWN_S = 0.2


@app.command()
def top(
    ctx: typer.Context,
    queues: SomeQueues = None,
    every: Annotated[str, typer.Option(help="How often to look (2s).", metavar="DURATION")] = "2s",
) -> None:
    """Watch queues: depths, rates, what is oldest, deaths, lag, next runs, what is wrong; pause, requeue.

    It takes at most 1 % of a core of the server: of very many queues those on the screen are looked at each time, the
    others in turn. Off a terminal it prints one table and ends.

    Examples:

      emq-ops top

      emq-ops top 'mail-*' --every 5s
    """
    context = CommandContext.of(ctx)
    every_s = duration_ms(every, "--every") / 1000
    if every_s <= 0:
        raise BadInputError("no time at all", where="--every", fix="give a duration such as 2s")
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or context.output != "table":
        ls_once(context, queues or ())
        return
    with ExitStack() as stack:
        server = stack.enter_context(context.server("top"))
        ledger = stack.enter_context(context.ledger_if_there())
        names = pick(context, queues or (), server)  # what is not there is said before the screen is taken
        collect_for_long()
        _Top(context, server, ledger, queues or (), every_s).run(names)


class _Top:
    """The loop: a thread looks, this one draws and follows keys. Acts are done by this one: nothing moves meanwhile."""

    def __init__(
        self, context: CommandContext, server: Server, ledger: Ledger | None, queues: Sequence[str], every_s: float
    ) -> None:
        self._context, self._server, self._ledger, self._queues = context, server, ledger, queues
        self._every_s = every_s
        self._screen = Screen(where=hide(str(context.wiring.server["url"])))
        self._news: queue.Queue[dict[str, WatchedQueue] | Exception] = queue.Queue()
        self._ended, self._again = threading.Event(), threading.Event()
        self._since = 0.0

    def run(self, names: Sequence[str]) -> None:
        """Until ``q`` or Ctrl-C; the terminal is as it was afterwards."""
        from rich.console import Console
        from rich.live import Live

        from emq_ops.cli.top_draw import draw
        from emq_ops.cli.top_keys import read_keys, unbuffered

        console, looker = Console(), threading.Thread(target=self._look, args=(names,), daemon=True)
        looker.start()
        try:
            with unbuffered(0), Live(console=console, screen=True, auto_refresh=False) as live:
                while True:
                    self._take_news()
                    live.update(draw(self._screen, *console.size), refresh=True)
                    if any(self._left(key) for key in read_keys(0, DRAWN_S)):
                        return
        except (KeyboardInterrupt, EOFError):
            return
        finally:
            self._ended.set()
            self._again.set()
            looker.join(2)

    def _look(self, names: Sequence[str]) -> None:
        context, ours = self._context, self._server
        watch = Watch(
            ours,
            self._ledger,
            lambda: pick(context, self._queues, ours),
            protected=protected_of(context, names),
            streams=streams_of(context, names),
        )
        while not self._ended.is_set():
            try:
                watch.look(self._screen.shown, self._every_s)
                self._news.put(watch.known)
            except EmqError as fault:
                self._news.put(fault)
            except Exception as fault:  # noqa: BLE001  # of ours: told by the one that has the screen, which ends by it
                self._news.put(fault)
                return
            self._again.wait(max(self._every_s, watch.wait_s))
            self._again.clear()

    def _take_news(self) -> None:
        while not self._news.empty():
            news = self._news.get()
            if isinstance(news, Exception) and not isinstance(news, EmqError):
                raise news
            if isinstance(news, dict):
                back = f"back after {time.monotonic() - self._since:.0f} s" if self._since else ""
                self._screen.found, self._screen.away, self._since = news, "", 0.0
                self._screen.said = back or self._screen.said
            else:
                self._since = self._since or time.monotonic()
                self._screen.away = f"away for {time.monotonic() - self._since:.0f} s, all this is as old: {news.what}"

    def _left(self, key: str) -> bool:
        """What a key does; True where it was the last."""
        screen = self._screen
        if screen.question is not None:
            screen.said = self._done(screen.question) if key == "y" else "nothing was changed"
            screen.question = None
            self._again.set()  # what was done is to be seen
            return False
        if screen.key(key):
            return False
        if key == "q":
            return True
        screen.said = ""
        name = screen.chosen
        if key in ("p", "r") and name:
            try:
                screen.question = self._pausing(name) if key == "p" else self._requeueing(name)
            except EmqError as refusal:
                screen.said = str(refusal)
            if screen.question is not None and self._ledger is None:
                screen.question, screen.said = None, "no state yet: emq-ops apply makes one"
        return False

    def _done(self, question: Question) -> str:
        try:
            return question.act()
        except EmqError as refusal:
            return str(refusal)

    def _pausing(self, name: str) -> Question:
        paused = is_paused(Queue(self._server, name))  # as it is now, not as it was at the last look
        what = RESUME if paused else PAUSE

        def do() -> str:
            assert self._ledger is not None
            order = order_of(name, PausePolicy(why="top"), ActOptions(why="top"))
            lease = NoLease(self._server, name, self._ledger, sets=True)
            report = run_pass(Services(self._server, self._ledger), what, order, lease).report
            verb = "resume" if report.paused else "pause"
            return f"{name}: {'paused' if report.paused else 'resumed'} (back: emq-ops queue {verb} {name})"

        return Question(f"{'Resume' if paused else 'Pause'} {name}?", do)

    def _requeueing(self, name: str) -> Question:
        targets = choose(self._server, name, DeadSelection(), self._ledger)
        text = f"Requeue {len(targets.jobs):,} dead of {name}?"
        if targets.last_attempt:
            text += f" {targets.last_attempt:,} died at their last attempt: the next error kills them again."

        def do() -> str:
            assert self._ledger is not None
            options = ActOptions(protect=protected(self._context, name))
            report = act(self._server, REQUEUE, targets, self._ledger, options)
            return f"{name}: {report.done:,} wait again (run {report.run})"

        return Question(text, do)
