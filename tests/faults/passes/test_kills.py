"""Every pass killed before and after every request and every commit: the next one ends in the same state as an
undisturbed one, on the server and in the ledger."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from emq_ops.ledger import deaths, interruptions, runs, stalls
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.faults.passes.run_pass import QUEUE, one_pass
from tests.support.keyspace import dump
from tests.support.kills import WHOLE, kill_at, moments
from tests.support.passing import add, kill_row, swept, take
from tests.support.proxy import RespProxy, scripted
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote

PASS = "tests.faults.passes.run_pass"

GROUP = "GRP0SSBKAh61tG"


def lapsed(mail: Queue) -> None:
    """Leases that lapsed long since: some at their last stall, one in a lane, one ghost."""
    mine = add(mail, 3) + add(mail, 1, GROUP)
    take(mail, 3, 60_000)
    take(mail, 1, 60_000, lane=True)
    past = mail.server.now_ms(QUEUE) - 60_000
    for place, job in enumerate([*mine, mint()]):
        mail.server.write("ZADD", mail.keys.active, past + place, job)
    mail.server.write("HSET", mail.keys.row(mine[0]), "stalled", 1)
    mail.server.write("HSET", mail.keys.row(mine[2]), "stalled", 1)
    mail.server.write("RPUSH", mail.keys.book(mine[2], "logs"), "a line")


def counted(server: Server, ledger: Ledger) -> None:
    swept(server, ledger, QUEUE)
    lapsed(Queue(server, QUEUE))


def exempted(server: Server, ledger: Ledger) -> None:
    """After an outage; one job has been exempt as often as it may be."""
    mail = Queue(server, QUEUE)
    counted(server, ledger)
    for member in server.read("ZRANGE", mail.keys.active, 2, 2):
        server.write("HSET", mail.keys.exempt, member, 1)
    interruptions.mark_lost(ledger, [QUEUE])


def trimmed(server: Server, ledger: Ledger) -> None:
    mail = Queue(server, QUEUE)
    kill_row(mail, 5)
    swept(server, ledger, QUEUE)
    held, *_ = kill_row(mail, 4)  # these the ledger does not know yet
    server.write("SET", mail.keys.book(held, "lock"), "w")
    server.write("SET", mail.keys.book(held, "dependencies"), "0")


def _state_of(server: Server, ledger: Ledger) -> tuple[Any, ...]:
    """All that must come out alike, however often the work was interrupted."""
    keyspace = {key: value for key, value in dump(server).items() if not key.endswith(":lease")}
    died = sorted(
        (d.job, d.attempts, d.stalls, d.cause, d.evidence or "", d.killed_by is not None, d.gone_how or "", d.snapshot)
        for d in deaths.iterate(ledger)
    )
    lost = sorted((s.job, s.outcome, s.stalls, s.evidence) for s in stalls.iterate(ledger))
    cuts = [(c.kind, c.in_flight, c.recovered, c.exempted, c.died, c.vanished) for c in interruptions.listing(ledger)]
    trims = {run.id for run in runs.latest(ledger, kind="trim")}
    ours = all(d.gone_by in trims for d in deaths.iterate(ledger) if d.gone_how == "trimmed")
    return keyspace, died, lost, cuts, ours


class Scenario:
    """A keyspace and a ledger that can be put back as they were."""

    def __init__(self, server: Server, folder: Path, prepare: Any) -> None:
        self.server, self.folder = server, folder
        with open_ledger(f"sqlite:///{folder}/template.db") as ledger:
            prepare(server, ledger)
        self._dumps = [(key, server.read("DUMP", key)) for key in sorted(set(server.scan()))]

    def fresh(self, name: str) -> str:
        """The state's URL."""
        self.server.write("FLUSHDB")
        for key, body in self._dumps:
            self.server.write("RESTORE", key, 0, body)
        shutil.copy(self.folder / "template.db", self.folder / f"{name}.db")
        return f"sqlite:///{self.folder}/{name}.db"


@pytest.mark.parametrize(
    ("what", "prepare"),
    [("sweep", counted), ("sweep", exempted), ("trim", trimmed)],
    ids=lambda v: getattr(v, "__name__", v),
)
@WHOLE
def test_killed_anywhere_the_next_pass_ends_in_the_same_state(
    whole: bool, what: str, prepare: Any, server: Server, valkey: Valkey, zygote: Zygote, tmp_path: Path
) -> None:
    scenario = Scenario(server, tmp_path, prepare)
    with RespProxy(valkey.url) as proxy:
        # The first time the scripts are loaded too, which no later run does.
        assert zygote.run(PASS, what=what, url=proxy.url, state=scenario.fresh("first")) == 0
        state = scenario.fresh("undisturbed")
        proxy.forget()
        counts = zygote.start(PASS, what=what, url=proxy.url, state=state).result()
        kills, died = moments(counts, proxy, whole=whole), 0
        with open_ledger(state) as ledger:
            one_pass(what, server, ledger)  # a pass that has nothing left to do changes nothing
            end = _state_of(server, ledger)
        for number, moment in enumerate(kills):
            state = scenario.fresh(str(number))
            died += kill_at(moment, zygote, PASS, {"request": proxy}, what=what, url=proxy.url, state=state).wait() != 0
            with open_ledger(state) as ledger:
                one_pass(what, server, ledger)
                assert _state_of(server, ledger) == end, moment
                assert not [run for run in runs.latest(ledger, kind=what)[1:] if run.status == runs.RUNNING]
        assert died > 0.9 * len(kills)


@pytest.mark.parametrize("what", ["sweep", "trim"])
def test_a_deposed_leader_that_was_frozen_writes_nothing_more(
    what: str, server: Server, valkey: Valkey, zygote: Zygote, tmp_path: Path
) -> None:
    """SIGSTOP in the middle of a pass, beyond its lease; another one does the work; SIGCONT: refused."""
    scenario = Scenario(server, tmp_path, counted if what == "sweep" else trimmed)
    state = scenario.fresh("state")
    script = {"sweep": "sweep_pass", "trim": "dead_trim"}[what]
    with RespProxy(valkey.url) as proxy, open_ledger(state) as ledger:
        held = proxy.arm("hold", at=2, match=scripted(script))
        child = zygote.start(PASS, what=what, url=proxy.url, state=state, lease_ms=400)
        held.wait()
        child.signal(signal.SIGSTOP)
        report = one_pass(what, server, ledger)  # waits for the lease to run out: its holder is not dead
        assert report["status"] == "done"
        end = _state_of(server, ledger)
        held.release()
        child.signal(signal.SIGCONT)
        assert child.wait() == 0  # fenced off, it asked for the lease again, and found nothing to do
        assert _state_of(server, ledger) == end
        other, frozen = runs.latest(ledger, kind=what)[:2]
        assert frozen.started_ms < other.started_ms
        assert (frozen.token or 0) > (other.token or 0)  # one call is one run: it went on under a lease of its own
        count = "removed" if what == "trim" else "dead"
        others, own = (run.counts.get(count, 0) for run in (other, frozen))
        gone = [death for death in deaths.iterate(ledger) if what == "sweep" or death.gone_how == "trimmed"]
        assert others == report[count] > 0
        assert own == len(gone) - others  # each tells what it did, all its lives together, and nothing twice
        assert own > 0 or what == "trim"  # a trim may have been held in its only slice


def test_two_sweeps_at_once_count_every_stall_once(
    server: Server, valkey: Valkey, tmp_path: Path, zygote: Zygote
) -> None:
    scenario = Scenario(server, tmp_path, counted)
    state = scenario.fresh("undisturbed")
    with open_ledger(state) as ledger:
        one_pass("sweep", server, ledger)
        end = _state_of(server, ledger)
    state = scenario.fresh("two")
    child = zygote.start(PASS, what="sweep", url=valkey.url, state=state)
    with open_ledger(state) as ledger:
        one_pass("sweep", server, ledger)
        assert child.wait() == 0
        assert _state_of(server, ledger) == end
        assert QueueLease(server, ledger, QUEUE).try_acquire().token >= 3
