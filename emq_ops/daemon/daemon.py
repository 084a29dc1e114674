"""The daemon itself: named stages, each with its own period; none of them may end the process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

from emq_ops.config.models import DaemonSection
from emq_ops.daemon import behind, clock, memory, pumps, wedged
from emq_ops.daemon.applied import AppliedRevision, MakeStores, Successor
from emq_ops.daemon.behind import Behind
from emq_ops.daemon.chores import Chore, Chores
from emq_ops.daemon.digest import EVERY_SECONDS, Digest
from emq_ops.daemon.dispatch import Dispatcher
from emq_ops.daemon.drifting import Drifting
from emq_ops.daemon.events import (
    ClockStepped,
    DaemonStarted,
    QueueRefused,
    RestartNeeded,
    RevisionFollowed,
    Stopping,
    TaskMissed,
)
from emq_ops.daemon.leads import Leads
from emq_ops.daemon.monitor import QueueMonitor
from emq_ops.daemon.notify import ReadyFile, Surroundings, sd_notify
from emq_ops.daemon.pools import Sizes
from emq_ops.daemon.probe import GLANCE_SECONDS
from emq_ops.daemon.progress import EVERY_MS, ProgressBook
from emq_ops.daemon.pumps import Pumps, fired_by
from emq_ops.daemon.requests import serve
from emq_ops.daemon.settings import at_next_start
from emq_ops.daemon.tasks import PassTask, TaskSet, task_set
from emq_ops.daemon.timers import Timers
from emq_ops.daemon.work import PassRunner
from emq_ops.database.space import give_back
from emq_ops.deploy.store.revisions import Revision
from emq_ops.ledger import alerts, interruptions, marks, retention
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.pending_runs import IdleBook, PendingRuns
from emq_ops.ledger.retention import Retention
from emq_ops.passes.events import Emit
from emq_ops.passes.frame.context import Services
from emq_ops.passes.lease.holder import who
from emq_ops.passes.observe.mark_idle import mark_idle_queues
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.scripts import load_all
from emq_ops.protocol.server import Server

TURN_SECONDS = 0.1


class Daemon:
    """Runs the applied revision of a state on a server. One `run` an object."""

    def __init__(
        self,
        server: Server,
        ledger: Ledger,
        make_stores: MakeStores,
        env: Mapping[str, str],
        emit: Emit,
        around: Surroundings | None = None,
    ) -> None:
        """Raises NothingAppliedError, BadInputError for a reference that can't be resolved, and what server and ledger
        raise."""
        self._digest = emit = Digest(emit)
        self.server, self.ledger, self.env, self.emit = server, ledger, env, emit
        self._around = around or Surroundings()
        self.applied = AppliedRevision(ledger, env, make_stores, emit)
        self.ready = ReadyFile(self._around.ready)
        self._set, self._set_of = TaskSet({}, {}), self.revision.document
        self._queues: list[str] = []
        self._told: set[str] = set()
        self.chores = Chores(emit, writes=self._beat)
        self.written_at = clock.steady()
        self._started_ms = clock.now_ms()
        self.hangup = threading.Event()
        """Set it to look at the revision and the server's queues at once (SIGHUP)."""
        self.idle, self.book = IdleBook(ledger, who()), ProgressBook(ledger)
        self.leads = Leads(server, ledger, self.settings.lease, emit)
        self.services = Services(
            server, ledger, make_stores(self.revision), self.applied.open_windows, emit, unwritten=PendingRuns(ledger)
        )
        sizes = Sizes(self.settings.threads, self.settings.archive_threads, self.settings.backoff)
        self.dispatcher = Dispatcher(PassRunner(self.services), self.leads, self.book, self.idle, emit, sizes)
        self.probe = self.dispatcher.probe
        self.timers = Timers(self.dispatcher.cue, self._missed)
        self.behind = Behind(self.dispatcher, self.timers, ledger, emit)
        self.drifting = Drifting(server, ledger, env, emit)
        self.monitor = QueueMonitor(self.services, self._led, self.tasks)
        self.pumps = Pumps(server.hurried(GLANCE_SECONDS), ledger, emit)
        self.beside: list[Chore] = []  # what else is done on the main thread

    @property
    def revision(self) -> Revision:
        """The revision that it runs."""
        return self.applied.revision

    @property
    def settings(self) -> DaemonSection:
        """``daemon:`` of that revision."""
        return self.applied.terms.settings

    def run(self, stop: threading.Event) -> None:
        """Runs until `stop` is set; then everything in hand ends, leases are given up, and it returns within
        `stop_within` of the settings. Raises ForeignQueueError where another state owns a queue at the start."""
        load_all()
        self._rescan()
        self.leads.start()  # first: what is taken is kept, however long it takes to have looked at all queues
        try:
            self._lead(first=True)
        except BaseException:
            self.leads.stop()
            raise
        self.timers.start()
        self.monitor.looks.start()
        try:
            self.ready.up()
            sd_notify("READY=1")
            number, tasks = self.revision.number, len(self._set.tasks)
            self.emit(DaemonStarted("*", revision=number, tasks=tasks, queues=len(self._queues)))
            self._loop(stop)
        finally:
            self._end()

    @property
    def queues(self) -> list[str]:
        """The queues of the revision, whoever leads them. From any thread."""
        return list(self._queues)

    def tasks(self) -> list[PassTask]:
        """The tasks of the queues that this daemon keeps the timetable of. From any thread."""
        ours = self.leads.ours
        return [task for task in list(self._set.tasks.values()) if task.queue in ours]

    def _loop(self, stop: threading.Event) -> None:
        chores = [
            Chore(TURN_SECONDS, self.dispatcher.turn),
            Chore(0.5, self._follow),
            Chore(min(1.0, self.settings.lease / 5000), self._lead),
            Chore(0.5, self._serve),
            Chore(0.5, self._mind_the_clock),
            Chore(5.0, self._beat),
            Chore(behind.EVERY_SECONDS, self.behind.look),
            Chore(wedged.EVERY_SECONDS, self.monitor.judge),
            Chore(pumps.EVERY_SECONDS, self._look_at_pumps),
            Chore(1.0, lambda: self.drifting.look(self.settings.drift, self.revision, self._led())),
            Chore(EVERY_MS / 1000, self._flush),
            Chore(30.0, self._rescan),
            Chore(memory.EVERY_SECONDS, memory.tidy),
            Chore(3600.0, self._prune, clock.steady() + 60),
            Chore(EVERY_SECONDS, self._summarise, clock.steady() + EVERY_SECONDS),
        ]
        chores += self.beside
        chores += [Chore(0.5, follow)] if (follow := self._around.follow_file) is not None else []
        while not stop.wait(TURN_SECONDS / 2):
            if self.hangup.is_set():
                self.hangup.clear()
                self.services.stores.renew()
                self.applied.refused = None
                self.chores.do(self._rescan)
            self.chores.do_due(chores)

    def _rescan(self) -> None:
        live: list[str] = []
        with contextlib.suppress(EmqError):  # without the server the queues named at apply are known all the same
            live = [] if self.leads.away else self.server.queues()
            live += alerts.unsettled(self.ledger, set(live))
        document = self.revision.document
        before = self._set if self._set_of is document else None
        self._set, self._set_of = task_set(document, live or self._queues, self.env, before), document
        for queue, fault in self._set.faults.items():
            if f"{queue}: {fault}" not in self._told:
                self._told.add(f"{queue}: {fault}")
                self.emit(QueueRefused(queue, error=str(fault)))
        self._queues = self._set.queues
        self._retime()

    def _follow(self) -> None:
        if (found := self.applied.successor()) is None:
            return
        self._take(found)
        self._lead()
        self.emit(RevisionFollowed("*", revision=found.revision.number, tasks=len(self._set.tasks)))
        if waiting := at_next_start(self.applied.begun, found.revision.document):
            self.emit(RestartNeeded("*", sections=waiting))

    def _take(self, found: Successor) -> None:
        """Takes over a revision. Runs in hand go on under the old policy, with the stores that they have."""
        self.applied.take(found)
        self.dispatcher.backoff_ms = self.settings.backoff
        if found.stores is not None:
            self.services.stores = found.stores
            self.services.memory.clear()
        self._around.followed(found.revision)
        self._rescan()
        self.probe.forget()
        self._greet(self.leads.ours)

    def _lead(self, *, first: bool = False) -> None:
        before = set(self.leads.ours)
        if not self.leads.ask(self._queues, first=first):
            return
        gained, gone = self.leads.ours - before, before - self.leads.ours
        self.book.forget(gone)
        self.probe.forget(sorted(gained | gone))
        self._greet(gained)
        self._retime(self.book.load(gained) if gained else {})

    def _greet(self, queues: set[str]) -> None:
        """Looks at many queues at once: those that stand still cost no first pass each."""
        led = sorted(queue for queue in queues if self.leads.fence_of(queue) is not None)
        with contextlib.suppress(EmqError):  # their passes look for themselves, and say what is wrong
            for queue, state in mark_idle_queues(self.server, self.ledger, led).items():
                self.probe.found_idle(queue, state)
        fresh = set(led)
        self.probe.found_unheard([t for t in self._set.tasks.values() if t.queue in fresh], self.services.stores)

    def _retime(self, known: dict[tuple[str, str], marks.TaskProgress] | None = None) -> None:
        ours = {key: task for key, task in self._set.tasks.items() if task.queue in self.leads.ours}
        self.dispatcher.keep(ours)  # first: a cue of a task that it does not know would be dropped
        self.timers.set_tasks(ours.values(), known or {})

    def _led(self) -> list[str]:
        return [queue for queue in self._queues if self.leads.fence_of(queue) is not None]

    def _look_at_pumps(self) -> None:
        without = {queue for queue, look in self.monitor.looks.found.items() if look.repeat_ms is None}
        self.pumps.look(self._led(), fired_by(self._set.tasks.values()), without)

    def _serve(self) -> None:
        serve(self.ledger, self._led(), self.dispatcher, self._set.longest_lease_ms)

    def _missed(self, task: PassTask, count: int) -> None:
        self.book.missed(task, count)
        self.emit(TaskMissed(task.queue, task=task.text, count=count))

    def _mind_the_clock(self) -> None:
        if step := self.timers.mind_the_clock():
            self.emit(ClockStepped("*", seconds=round(step, 3)))
            self.book.moved(self.timers.times())
            self._flush()

    def _beat(self) -> None:
        facts: dict[str, Any] = {"waiting": self.dispatcher.waiting, "running": self.dispatcher.running}
        facts |= {"away": self.leads.away, "behind": self.behind.count, "longest_s": round(self.behind.longest_s)}
        facts["drifted"] = len(self.drifting.found)
        facts |= self.monitor.beat(self.revision.document, self.env)
        now, number = clock.now_ms(), self.revision.number
        marks.beat(self.ledger, marks.Living(who(), self._started_ms, now, number, self.leads.led, facts))
        self.leads.refresh()
        self.written_at = clock.steady()

    def _flush(self) -> None:
        self.book.flush({key: clock.ms_of(fires) for key, (_, fires) in self.timers.times().items()})
        self.idle.flush()
        if self.services.unwritten is not None:
            self.services.unwritten.put()
        if self.probe.seen_ms:
            with self.ledger.write() as connection:
                interruptions.save_seen(connection, self.probe.seen_ms)
            self.probe.seen_ms = {}

    def _summarise(self) -> None:
        self._digest.tell(waiting=self.dispatcher.waiting, running=self.dispatcher.running)

    def _prune(self) -> None:
        if (led := next(iter(self._led()), None)) is None:
            return  # whoever leads does it
        # Where this host's clock runs ahead, nothing is forgotten before its time.
        now = min(clock.now_ms(), self.server.now_ms(led))
        retention.prune(self.ledger, now, Retention.lasting(self.applied.terms.retain_ms))
        give_back(self.ledger)

    def _end(self) -> None:
        """Everything in hand ends, or is cut off; leases are given up."""
        within = self.settings.stop_within / 1000
        until = clock.steady() + within
        self.ready.down()
        sd_notify("STOPPING=1")
        self.timers.stop()
        self.monitor.looks.stop()
        self.dispatcher.end()
        self.emit(Stopping("*", running=self.dispatcher.running))
        # Every wait below the passes ends by this bound; what they have done so far stands.
        deadline.end_by(within * 0.6)
        self.dispatcher.drain(within * 0.7)
        self.leads.stop()
        deadline.end_by(max(0.5, until - clock.steady() - 0.5))
        self.leads.release()
        for write in (self._flush, lambda: marks.leave(self.ledger, who())):
            with contextlib.suppress(EmqError):  # the ledger may be away; the next daemon counts from what it has
                write()
        self._summarise()
        deadline.end_by(None)
