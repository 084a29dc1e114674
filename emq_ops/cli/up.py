"""``emq-ops up``: the daemon."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emq_archive.local.store import open_local
from emq_ops.cli.asking import require
from emq_ops.cli.context import CommandContext
from emq_ops.cli.deploying import removes_by
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.garbage import collect_for_long
from emq_ops.cli.options import new_app
from emq_ops.cli.stores import remote_of
from emq_ops.config.listening import require_token
from emq_ops.config.loader import Loaded
from emq_ops.config.models import HttpSection
from emq_ops.config.windows import around, sections_of
from emq_ops.config.wiring import Wiring
from emq_ops.daemon import clock
from emq_ops.daemon.alerting import Alerting
from emq_ops.daemon.applied import NothingAppliedError
from emq_ops.daemon.chores import Chore
from emq_ops.daemon.daemon import Daemon
from emq_ops.daemon.events import StateFault
from emq_ops.daemon.heartbeat import Heartbeat
from emq_ops.daemon.log import EventLog
from emq_ops.daemon.memory import limit_arenas
from emq_ops.daemon.notify import Surroundings
from emq_ops.daemon.once import run_due
from emq_ops.daemon.rules import LOOK_SECONDS, AlertRules
from emq_ops.daemon.status import task_rows
from emq_ops.daemon.tasks import task_set
from emq_ops.daemon.telemetry import health, known, telemetry
from emq_ops.daemon.work import PassRunner
from emq_ops.deploy.apply import check
from emq_ops.deploy.deployment import Deployment, require_set
from emq_ops.deploy.saved import StaleError
from emq_ops.deploy.store import revisions
from emq_ops.deploy.store.revisions import Revision
from emq_ops.http.app import Access, Pages, PageSources
from emq_ops.ledger.alerts import unsettled
from emq_ops.passes.events import Emit, Event
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.stores import Stores
from emq_ops.policy.references import names_of
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.extras import need
from emq_ops.protocol.masking import remember

if TYPE_CHECKING:
    from emq_ops.http.server import HttpServer

app = new_app()
COLUMNS = ("queue", "task", "status", "late_ms", "error")
PLANS = 5
"""So often `up --apply` plans where each plan goes stale before it is applied."""


@app.command()
def up(
    ctx: typer.Context,
    apply: Annotated[bool, typer.Option("--apply", help="Apply the file first, without asking.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Apply the file whenever it changes.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Run every pass that is due, once, and end.")] = False,
    allow_loss: Annotated[bool, typer.Option("--allow-loss", help="With --apply: also what could lose data.")] = False,
    ready_file: Annotated[Path | None, typer.Option(help="Exists while the daemon runs.", metavar="FILE")] = None,
    log: Annotated[str, typer.Option(help="Log lines on stderr: text or json.", metavar="FORM")] = "text",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every slice and every death.")] = False,
) -> None:
    """Run the applied revision: every pass on time, one leader a queue.

    Follows new revisions within 2 s. SIGTERM: the pass in hand ends, leases are given up, exit 0. SIGHUP: look at the
    revision, the file (--watch) and the server's queues at once.

    Examples:

      emq-ops up

      emq-ops up --apply --log json
    """
    if log not in ("text", "json"):
        raise BadInputError(f"no log form '{log}'", where="--log", fix="text or json")
    context = CommandContext.of(ctx)
    written = EventLog(log, verbose=verbose)
    with context.ledger() as ledger:
        where = context.server_wiring(revisions.current(ledger))
        with where.connect("up") as server:
            session = Deployment(server, ledger, context.wiring)
            if watch:
                require(context, "Apply the file whenever it changes, whatever goes by it?")
            if apply:
                agree = lambda: require(context, "Apply the file, by which something goes?")  # noqa: E731 - asked once
                _apply(session, context.loaded, written, agree, allow_loss)
            if once:
                raise typer.Exit(_once(session, context, where, written))
            follow = FileFollower(context, session, written, allow_loss) if watch else None
            _serve(session, where, written, ready_file, follow)


def _apply(session: Deployment, loaded: Loaded, log: EventLog, agree: Callable[[], None], allow_loss: bool) -> None:
    """Applies the file; where something goes by it, `agree` is asked once. Nobody was shown a plan: one that goes
    stale, since jobs die meanwhile, is made anew. Raises PlanRefusedError where it could lose data, or something
    forbids it, and StaleError where it goes stale each time."""
    agreed = False
    require_set(loaded)
    for left in reversed(range(PLANS)):
        proposal = session.propose(loaded)
        check(proposal.plan, allow_loss=allow_loss)
        if not agreed and removes_by(proposal.plan):
            agree()
            agreed = True
        try:
            done = session.apply(proposal, allow_loss=allow_loss, why="up --apply")
            break
        except StaleError:
            if not left:
                raise
    log.say("applied", revision=done.revision or proposal.plan.base, steps=len(proposal.plan.steps))


def _stores(where: Wiring) -> Callable[[Revision], Stores]:
    """The archive's stores as a revision has them; resolved when they are used."""

    def make(revision: Revision) -> Stores:
        wiring = revision.document.wiring(where.env)
        local, settings = wiring.archive_local, wiring.archive_remote
        return Stores(
            None if local is None else lambda: open_local(local, lambda: wiring.archive_local or local),
            None if settings is None else lambda: remote_of(settings, lambda: wiring.archive_remote),
        )

    return make


def _once(session: Deployment, context: CommandContext, where: Wiring, log: EventLog) -> int:
    revision = session.current()
    if revision is None:
        raise NothingAppliedError(session.ledger.where)
    live = session.server.queues()
    found = task_set(revision.document, [*live, *unsettled(session.ledger, set(live))], where.env)
    maintenance = sections_of(revision.document.data["config"], where.env)
    stores = _stores(where)(revision)
    windows = lambda: around(maintenance, clock.now_ms())  # noqa: E731 - asked for once a run
    runner = PassRunner(Services(session.server, session.ledger, stores, windows, log))
    try:
        rows = [outcome.as_row() for outcome in run_due(runner, found)]
    finally:
        stores.close()
    rows += [
        {"queue": q, "task": "*", "status": "failed", "late_ms": 0, "error": str(f)} for q, f in found.faults.items()
    ]
    context.emit_rows(rows, COLUMNS)
    return EXIT_ERROR if any(row["status"] == "failed" for row in rows) else 0


Stamps = dict[Path, tuple[int, int, int] | None]


def _stamps(paths: Iterable[Path]) -> Stamps:
    """Of each file or folder what changes when it is written or replaced; None where it is not there."""
    out: Stamps = {}
    for path in paths:
        try:
            found = path.stat()
            out[path] = found.st_mtime_ns, found.st_size, found.st_ino
        except OSError:
            out[path] = None
    return out


def _watched(loaded: Loaded) -> list[Path]:
    """What changes when the config does: its files, and the folders in which a pattern finds more of them."""
    return [*(source.path for source in loaded.sources), *loaded.folders]


class FileFollower:
    """Applies the config file whenever it changes. What is wrong with it is said once, and nothing changes."""

    def __init__(self, context: CommandContext, session: Deployment, log: EventLog, allow_loss: bool) -> None:
        self._context, self._session, self._log, self._allow_loss = context, session, log, allow_loss
        self._seen = self._last = _stamps(_watched(context.read_config()))

    def __call__(self) -> None:
        """Looks at the file. Raises nothing: a fault is logged."""
        try:
            before, now = self._last, _stamps(self._seen)
            self._last = now
            if now == self._seen or (None in now.values() and now != before):
                return  # a file that is gone may be about to be replaced: it is looked at once more
            self._seen = now
            loaded = self._context.read_config()
            # What changed while it was read is seen the next time.
            self._seen = {path: now.get(path, found) for path, found in _stamps(_watched(loaded)).items()}
            _apply(self._session, loaded, self._log, lambda: None, self._allow_loss)
        except EmqError as fault:
            self._log(StateFault("*", error=f"the changed file was not applied: {fault}"))


def _serve(
    session: Deployment, where: Wiring, log: EventLog, ready_file: Path | None, follow: Callable[[], None] | None
) -> None:
    limit_arenas()
    collect_for_long()
    stop = threading.Event()
    alerting = Alerting(where.env, lambda event: log.say("alert_not_sent", kind=getattr(event, "kind", "")))

    listeners: list[Emit] = [log, alerting]

    def emit(event: Event) -> None:
        for listener in listeners:
            listener(event)

    def take(revision: Revision) -> None:
        alerting.follow(revision.document.globals.get("alerts") or [])
        heartbeat.follow(daemon.applied.terms.heartbeat)

    daemon = Daemon(
        *(session.server, session.ledger, _stores(where), where.env, emit),
        Surroundings(ready_file, follow, take),
    )
    heartbeat = Heartbeat(
        lambda: bool(health(daemon)["ok"]), where.env, lambda why: log.say("heartbeat_not_taken", why=why)
    )
    rules = AlertRules(session.ledger, daemon.emit)

    def judge_rules() -> None:
        rules.look(daemon.applied.terms.rules, known(daemon))

    daemon.beside.append(Chore(LOOK_SECONDS, judge_rules))
    if ready_file is None and daemon.settings.ready_file:
        daemon.ready.path = Path(daemon.revision.document.data["base"]) / daemon.settings.ready_file
    take(daemon.revision)

    def end(_signal: int, _frame: Any) -> None:
        if not stop.is_set():
            stop.set()
            deadline.end_by(daemon.settings.stop_within / 1000 * 0.6)  # also of what the loop itself waits for
            # Whatever hangs: the process is gone in time. What was committed stands; leases lapse by themselves.
            guard = threading.Timer(max(0.5, daemon.settings.stop_within / 1000 - 0.3), lambda: os._exit(0))
            guard.daemon = True
            guard.start()

    http = _http(daemon, where, log, listeners)
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGHUP, lambda _signal, _frame: daemon.hangup.set())
    try:
        daemon.run(stop)
    finally:
        if http is not None:
            http.stop()


def _http(daemon: Daemon, where: Wiring, log: EventLog, listeners: list[Emit]) -> HttpServer | None:
    """The pages of ``http.listen``; None where nothing listens. What counts events for metrics is added to
    `listeners`."""
    section = daemon.revision.document.globals.get("http") or {}
    if not section.get("listen"):
        return None
    listen = where.value("http.listen", str(section["listen"]))
    token = where.value("http.token", str(section["token"])) if section.get("token") else None
    require_token(listen, token)
    remember(token or "", *names_of(str(section.get("token") or "")))
    rows = lambda: task_rows(daemon.server, daemon.ledger, daemon.revision, where.env)  # noqa: E731 - asked for by pages
    hosts = section.get("hosts") or []
    access = Access(token, section.get("metrics") == "open", tuple([hosts] if isinstance(hosts, str) else hosts))
    counters = need("emq_ops.http.metrics.counters").EventCounters()
    listeners.append(counters)
    most = int(section.get("metrics_queues") or HttpSection().metrics_queues)
    metrics = need("emq_ops.http.metrics.page").MetricsPage(lambda: telemetry(daemon), counters, most)
    pages = Pages(PageSources(lambda: health(daemon), rows, lambda: daemon.chores.turning, metrics.render), access)
    server: HttpServer = need("emq_ops.http.server").HttpServer(listen, pages, log.say)
    server.start()
    log.say("http", port=server.port)
    return server
