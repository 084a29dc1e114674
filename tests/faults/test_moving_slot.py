"""A queue's slot on its way to another node of a real Cluster: nothing is judged or written meanwhile, and all goes on
afterwards, and nothing is lost."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
import redis

from emq_ops.audit.dead import audit_dead
from emq_ops.audit.doctor.examination import examine
from emq_ops.audit.doctor.mend import mend
from emq_ops.ledger.acts import REMOVE, REQUEUE
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.act import act
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.passes.acts.targets import choose
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.policy.models import DeadPolicy, StalledPolicy
from emq_ops.protocol.connection import wholeness
from emq_ops.protocol.errors import SlotMovingError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.ids import mint
from emq_ops.protocol.keyspace import absent_keys, keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import in_cluster, load, names
from emq_ops.protocol.server import ConnectionOptions, Server, connect
from emq_ops.protocol.slots import slot
from emq_ops.protocol.transitions.claims import claim
from emq_ops.protocol.transitions.enqueue import enqueue, schedule_in
from emq_ops.protocol.transitions.leases import keep
from emq_ops.protocol.transitions.recover import reap
from emq_ops.protocol.transitions.settle import Failure, complete, retry
from tests.archive.folding import Host
from tests.support.cluster import SHARES, Cluster, ask
from tests.support.daemons import site
from tests.support.moving import Move
from tests.support.passing import add, kill_row, lapse, sweep, take, trim
from tests.support.roles import PASSWORD, ROLES, install

HASTY = ConnectionOptions(patience=0.2)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as opened:
        yield opened


@pytest.fixture
def patient(cluster: Cluster) -> Iterator[Server]:
    for node in cluster.nodes:
        ask(node, "FLUSHALL")
    with connect(cluster.url) as server:
        yield server


@pytest.fixture
def hasty(cluster: Cluster, patient: Server) -> Iterator[Server]:
    with connect(cluster.url, HASTY) as server:
        yield server


class Half:
    """A queue of every kind of job, its lease and a stream, and what was on the nodes before anything was tried."""

    def __init__(self, cluster: Cluster, server: Server, ledger: Ledger, folder: Path) -> None:
        self.cluster, self.server, self.ledger, self.folder, self.state = cluster, server, ledger, folder, ""
        self.name = next(f"q{n}" for n in range(200) if cluster.owner(slot(keys_of(f"q{n}").base)) is cluster.nodes[1])
        self.q = Queue(server, self.name)
        add(self.q, 3)
        take(self.q, 3)
        lapse(self.q)
        self.held = add(self.q, 2)
        self.pending = add(self.q, 2)
        kill_row(self.q, 5)
        for number in range(5):
            server.write("XADD", self.q.keys.stream("completions"), f"{number + 1}-0", "job", "x")
        self.lease = QueueLease(server, ledger, self.name, lease_ms=60_000)
        self.fence: Fence = self.lease.try_acquire()
        self.move = Move(cluster, self.name)

    def split(self, which: str) -> None:
        k = self.q.keys
        sets = [k.pending, k.active, k.dead, k.schedule, k.failed]
        if which == "sets":
            self.move.begin().carry(*sets)
        elif which == "rows":
            rows = [key for key in self.server.scan(k.all_pattern()) if b":job:" in key]
            self.move.begin().carry(*rows[:10])
        elif which == "lease":
            self.move.begin().carry(k.lease, k.stream("completions"), k.dead)
        else:
            self.move.begin()

    def digests(self) -> list[bytes]:
        """Of all that each node holds, whether it serves it or not."""
        return [ask(node, "DEBUG", "DIGEST") for node in self.cluster.nodes]

    def rows(self) -> set[bytes]:
        return {key for node in self.cluster.nodes for key in node.client().scan_iter(count=1000) if b":job:" in key}


@pytest.fixture
def half(cluster: Cluster, patient: Server, ledger: Ledger, state: str, tmp_path: Path) -> Iterator[Half]:
    made = Half(cluster, patient, ledger, tmp_path)
    made.state = state
    yield made
    made.move.forget()


def _doctor(server: Server, half: Half) -> None:
    list(mend(server, examine(server, [half.name], settle=0).findings))


def _act(kind: str) -> Callable[[Server, Half], object]:
    def run(server: Server, half: Half) -> None:
        act(server, kind, choose(server, half.name, DeadSelection(), half.ledger), half.ledger)

    return run


DOORS: dict[str, Callable[[Server, Half], object]] = {
    "doctor": _doctor,
    "sweep": lambda s, h: sweep(s, h.name, StalledPolicy(), h.ledger, h.fence),
    "trim": lambda s, h: trim(s, h.name, DeadPolicy(keep=0, archive=False), h.ledger, h.fence),
    "audit": lambda s, h: audit_dead(s, [h.name], DeadSelection(), h.ledger),
    "requeue": _act(REQUEUE),
    "remove": _act(REMOVE),
    "fold": lambda s, h: Host.in_folder(s, h.folder, queue_name=h.name).anew(keep=1).cycle(force=True),
    "claim": lambda s, h: claim(Queue(s, h.name), 60_000),
    "enqueue": lambda s, h: enqueue(Queue(s, h.name), h.held[0], b"x"),
    "complete": lambda s, h: complete(Queue(s, h.name), h.held[0], 1),
    "retry": lambda s, h: retry(Queue(s, h.name), h.held[1], 1, Failure("it failed", 1_000, 5)),
    "schedule": lambda s, h: schedule_in(Queue(s, h.name), mint(), b"x", 1_000),
    "reap": lambda s, h: reap(Queue(s, h.name)),
    "keep": lambda s, h: keep(Queue(s, h.name), [(h.held[0], 1)], 60_000),
    "lease": lambda s, h: s.run(load("lease_renew"), [h.fence.key], [60_000, "", *h.fence.args]),
}


@pytest.mark.parametrize("which", ["sets", "rows", "lease", "nothing"])
def test_nothing_is_judged_or_written_in_a_slot_that_is_half_moved(half: Half, hasty: Server, which: str) -> None:
    rows = half.rows()
    half.split(which)
    before = half.digests()
    for name, door in DOORS.items():
        with pytest.raises(SlotMovingError, match="the Cluster is moving this slot"):
            pytest.fail(f"{name}: {door(hasty, half)}")
        assert half.digests() == before, name
    half.move.finish()
    assert examine(half.server, [half.name], settle=0).findings == []
    assert half.rows() == rows


def test_a_move_that_was_given_up_half_way_is_found_out(half: Half, hasty: Server) -> None:
    half.split("rows")
    half.move.turn_back(carried=False)
    before = half.digests()
    with connect(half.cluster.url, HASTY) as fresh:  # one that never saw it move
        for server in (fresh, hasty):
            for name in DOORS.keys() - {"lease"}:  # which looks at its own key alone
                with pytest.raises(SlotMovingError, match=r"moving this slot: 10 of its keys lie on 127\.0\.0\.1:\d+"):
                    pytest.fail(f"{name}: {DOORS[name](server, half)}")
    assert half.digests() == before
    half.move.begin().turn_back()
    assert examine(hasty, [half.name], settle=0).findings == []


def test_the_doctor_examines_and_mends_the_other_queues(half: Half, hasty: Server) -> None:
    first = half.cluster.nodes[0]
    other = next(f"q{n}" for n in range(200) if half.cluster.owner(slot(keys_of(f"q{n}").base)) is first)
    hasty.write("ZADD", keys_of(other).active, hasty.now_ms(other), mint())
    hasty.write("ZADD", half.q.keys.active, hasty.now_ms(other), mint())
    both = examine(hasty, [half.name, other], settle=0)
    assert sorted((f.queue, f.kind) for f in both.findings) == sorted((q, "ghost") for q in (half.name, other))
    half.split("sets")
    before = half.digests()
    found = examine(hasty, [half.name, other], settle=0)
    assert [(f.queue, f.kind) for f in found.findings] == [(other, "ghost")]
    assert found.unjudged == [half.name]
    # What was found before the move began is left alone too.
    outcomes = {(m.finding.queue, m.outcome) for m in mend(hasty, both.findings)}
    assert outcomes == {(half.name, "left"), (other, "mended")}
    assert half.digests()[1:] == before[1:]
    half.move.finish()
    assert [m.outcome for m in mend(hasty, examine(hasty, [half.name, other], settle=0).findings)] == ["mended"]


COMMANDS = [
    ("doctor", "--fix"),
    ("doctor", "{q}", "--fix"),
    ("sweep", "{q}"),
    ("trim", "{q}", "--yes", "--keep", "0"),
    ("audit", "dead", "{q}"),
    ("audit", "dead", "{q}", "--remove", "--yes"),
    ("archive", "fold", "{q}", "completions"),
    ("worker", "enqueue", "{q}", "x", "--new"),
]


def test_every_command_says_so_and_exits_3(half: Half, tmp_path: Path) -> None:
    config = f"""
server: {{url: "{half.cluster.url}?patience=0.2"}}
state: {{url: "{half.state}"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}}}
queues: {{{half.name}: {{dead: {{keep: 1}}, streams: {{completions: {{keep: 1}}}}}}}}
"""
    half.lease.release()
    half.split("sets")
    before = half.digests()
    with site(tmp_path / "s", config) as here:
        for words in COMMANDS:
            said = here.run(*[word.format(q=half.name) for word in words], code=3)
            assert "the Cluster is moving this slot" in said.err, words
            assert "Traceback" not in said.err
    assert half.digests() == before


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was asked about slots ages by this alone: seconds."""
    now = [time.monotonic()]
    monkeypatch.setattr(wholeness, "steady", lambda: now[0])
    return now


@pytest.fixture
def given_up(half: Half, patient: Server, clock: list[float]) -> Iterator[Callable[[], list[Server]]]:
    """Splits the slot and gives the move up, with keys on both sides; returns a server for each door. Each knew the
    slot as whole, and nobody looks again meanwhile."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(connect(half.cluster.url, HASTY)) for _ in range(len(DOORS))]

        def give_up() -> list[Server]:
            for server in servers:
                DOORS["audit"](server, half)
            half.split("rows")
            half.move.turn_back(carried=False)
            return servers

        yield give_up


def test_a_script_is_refused_though_its_slot_was_whole_when_it_was_asked(
    half: Half, given_up: Callable[[], list[Server]]
) -> None:
    rows = half.rows()
    servers = given_up()
    before = half.digests()
    for name, server in zip(sorted(DOORS.keys() - {"lease"}), servers, strict=False):  # which looks at its key alone
        with pytest.raises(SlotMovingError):
            pytest.fail(f"{name}: {DOORS[name](server, half)}")
        assert half.digests() == before, name
    half.move.begin().turn_back()
    assert half.rows() == rows


def test_every_script_is_refused_before_its_first_line(half: Half) -> None:
    """Called with one key and no arguments, it would fail or go wrong there."""
    keys = [half.q.keys.pending, *absent_keys(half.q.keys.pending)]
    with half.move.source.client() as client:
        for name in names():
            script = in_cluster(load(name))
            if not script.one_key:
                with pytest.raises(redis.ResponseError, match="slots of this node moved meanwhile"):
                    pytest.fail(f"{name}: {client.eval(script.source, 3, *keys, wholeness.NO_PROOF)!r}")


@pytest.mark.parametrize("forgets", [False, True])
def test_moves_of_other_slots_are_waited_out(half: Half, patient: Server, clock: list[float], forgets: bool) -> None:
    DOORS["audit"](patient, half)
    node = half.move.source
    other, _ = SHARES[half.cluster.nodes.index(node)]
    assert half.cluster.owner(other) is node
    if forgets:
        ask(node, "CONFIG", "RESETSTAT")
    else:
        ask(node, "CLUSTER", "SETSLOT", other, "STABLE")
    assert examine(patient, [half.name], settle=0).findings == []


@pytest.mark.parametrize("role", ROLES)
def test_every_role_may_call_its_scripts_and_finds_out_what_moves(half: Half, patient: Server, role: str) -> None:
    for node in half.cluster.nodes:
        install(node)
    user = f"emq-ops-{role}:{quote(PASSWORD, safe='')}@"
    with connect(half.cluster.url.replace("://", "://" + user), HASTY) as server:
        doors = ["audit"] if role == "reader" else ["claim"] if role == "worker" else ["audit", "claim", "sweep"]
        for name in doors:
            DOORS[name](server, half)
        half.split("sets")
        for name in doors:
            with pytest.raises(SlotMovingError):
                pytest.fail(f"{name}: {DOORS[name](server, half)}")
        half.move.turn_back(carried=False)
        for name in doors:
            with pytest.raises(SlotMovingError, match="of its keys lie on"):
                pytest.fail(f"{name}: {DOORS[name](server, half)}")


@pytest.mark.parametrize("end", ["finish", "turn_back"])
def test_who_waits_goes_on_when_the_move_ends(half: Half, patient: Server, end: str) -> None:
    half.split("sets")
    names = ["claim", "doctor"] + (["sweep"] if end == "turn_back" else [])
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(DOORS[name], patient, half) for name in names]
        time.sleep(0.1)  # they are on their way; they may still come later
        getattr(half.move, end)()
        for one in waiting:
            one.result(10)
    assert examine(patient, [half.name], settle=0).findings == []


def test_an_atomic_move_is_nothing_to_wait_for(half: Half, hasty: Server) -> None:
    asked = threading.Event()
    faults: list[BaseException] = []
    taken: list[str] = []

    def work() -> None:
        try:
            while not asked.is_set():
                examine(hasty, [half.name], settle=0)
                if (got := claim(Queue(hasty, half.name), 60_000)) is not None:
                    taken.append(got.job)
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=work)
    thread.start()
    half.move.atomic()
    asked.set()
    thread.join(10)
    assert faults == []
    assert taken == [*half.held, *half.pending][: len(taken)]
    assert examine(hasty, [half.name], settle=0).findings == []


def test_a_scan_finds_every_key_though_its_slot_moves_behind_it(half: Half, patient: Server) -> None:
    first = half.cluster.nodes[0]
    base = f"emq:{{{_on(half.cluster, 0)}}}:de:"
    with first.client() as client:  # more than one page, on the node that is scanned first
        client.mset({f"{base}{number}": "x" for number in range(2000)})
    wanted = half.rows()
    move = half.move
    move.target = first
    scan = patient.scan()
    found = {next(scan)}
    assert not found & wanted
    for key in scan:
        if len(found) == 1990:  # the first node is through but for its end
            move.atomic()
        found.add(key)
    assert wanted <= found
    assert half.name in patient.queues()


def _on(cluster: Cluster, node: int) -> str:
    return next(f"q{n}" for n in range(200) if cluster.owner(slot(keys_of(f"q{n}").base)) is cluster.nodes[node])
