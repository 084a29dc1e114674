"""Applying on a real server with the state in SQLite and in PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from emq_ops.deploy.apply import PlanRefusedError
from emq_ops.deploy.document import Document
from emq_ops.deploy.model import Step
from emq_ops.deploy.saved import StaleError
from emq_ops.deploy.store import revisions
from emq_ops.deploy.store.lock import LockedError, LockLostError, StateLock, owner_of, unlock
from emq_ops.ledger import bounds
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import control, reads, repeat
from tests.deploy.conftest import Desk
from tests.support.keyspace import dump

LANE = "GRP0SSBKAh61tG"
FULL = f"""\
queues:
  q:
    stalled: {{every: 10s}}
    settings:
      paused: true
      concurrency: 50
      rate: 9
      lanes: {{{LANE}: {{limit: 2, weight: 3, paused: true}}}}
      repeatables: {{nightly: {{every: 1d, template: "hello"}}}}
"""
BARE = "queues: {q: {}}\n"


def lanes(server: Server) -> list[reads.Lane]:
    return reads.lanes(Queue(server, "q"))


def test_every_setting_there_and_back(desk: Desk) -> None:
    q = Queue(desk.server, "q")
    before = dump(desk.server)
    assert desk.apply(FULL) == 1
    assert (reads.is_paused(q), reads.concurrency(q), reads.rate(q)) == (True, 50, 9)
    assert [(lane.group, lane.limit, lane.paused) for lane in lanes(desk.server)] == [(LANE, 2, True)]
    assert desk.server.read("HGET", q.keys.gweight, LANE) == b"3"
    [made] = repeat.repeatables(q)
    assert (made.name, made.every_ms, made.template) == ("nightly", 86_400_000, b"hello")
    assert desk.propose(FULL).plan.empty

    changed = FULL.replace("1d", "1h").replace("50", "60").replace("paused: true\n", "paused: false\n")
    assert desk.apply(changed) == 2
    assert (reads.is_paused(q), reads.concurrency(q)) == (False, 60)
    [made] = repeat.repeatables(q)
    assert made.every_ms == 3_600_000
    assert made.next_ms <= desk.server.now_ms("q") + 3_600_000

    assert desk.apply(BARE) == 3
    assert dump(desk.server) == before
    assert [head.number for head in revisions.history(desk.ledger)] == [3, 2, 1]


def test_c09_an_identical_file_changes_nothing(light_desk: Desk) -> None:
    assert light_desk.apply(FULL) == 1
    keys = dump(light_desk.server)
    assert light_desk.apply(FULL) is None
    assert light_desk.apply(FULL + "# a remark\n") is None
    assert dump(light_desk.server) == keys
    applied = light_desk.session.current()
    assert applied is not None
    assert applied.number == 1
    assert list(applied.document.queues) == ["q"]


def test_a_queue_paused_by_hand_stays_paused_and_is_shown(light_desk: Desk) -> None:
    config = "queues: {q: {settings: {paused: false, concurrency: 5}}}\n"
    light_desk.apply(config)
    control.pause_queue(Queue(light_desk.server, "q"))
    shown = light_desk.propose(config).plan
    assert shown.empty
    assert [d.address for d in shown.drift] == ["q/paused"]
    assert [d.address for d in light_desk.session.drift()] == ["q/paused"]
    # Another change leaves it alone.
    assert light_desk.apply(config.replace("5", "6")) == 2
    assert reads.is_paused(Queue(light_desk.server, "q"))
    assert light_desk.apply(config.replace("5", "6"), revert=("q/paused",)) == 3
    assert not reads.is_paused(Queue(light_desk.server, "q"))
    assert light_desk.session.drift() == []


def test_what_could_lose_data_is_refused_without_a_word(light_desk: Desk) -> None:
    config = "queues: {q: {dead: {keep: 5, archive: false}}}\n"
    with pytest.raises(PlanRefusedError, match="data could be lost: q/dead: keep 5 is new") as caught:
        light_desk.apply(config)
    assert caught.value.fix == "--allow-loss, if that is meant"
    assert light_desk.session.current() is None
    assert light_desk.apply(config, allow_loss=True) == 1


def test_a_queue_of_another_state_is_refused(light_desk: Desk) -> None:
    light_desk.server.write(
        "HSET", keys_of("q").lease, "state", "someone-else", "role", "daemon", "host", "b", "pid", "7"
    )
    with pytest.raises(PlanRefusedError, match="belongs to state someone-else"):
        light_desk.apply(FULL)
    assert light_desk.server.read("EXISTS", keys_of("q").meta) == 0


def test_the_dead_that_were_listed_bound_the_first_pass(desk: Desk) -> None:
    q = Queue(desk.server, "q")
    jobs = sorted(ids.mint() for _ in range(6))
    for job in jobs:
        desk.server.write("HSET", q.keys.row(job), "state", "dead", "attempts", "1", "payload", "x")
        desk.server.write("ZADD", q.keys.dead, 0, job)
    desk.server.write("SET", q.keys.book(jobs[0], "lock"), "x")
    proposal = desk.propose("archive: {}\nqueues: {q: {dead: {keep: 2}}}\n")
    [step] = [s for s in proposal.plan.steps if s.kind == "dead"]
    assert (step.effect["dead"], step.effect["remove"], step.effect["ids"]) == (6, 3, jobs[1:4])
    assert step.notes == ["1 stay: held"]
    desk.session.apply(proposal)
    with desk.ledger.write() as connection:
        bound = bounds.of(connection, "q")
        assert bound is not None
        assert (bound.revision, bound.ids) == (1, frozenset(jobs[1:4]))
        bounds.consume_plan_limit(connection, bound)
        assert bounds.of(connection, "q") is None


def test_two_applies_at_once(make_desk: Callable[[], Desk]) -> None:
    first, second = make_desk(), make_desk()
    begun, go_on = threading.Event(), threading.Event()

    def wait(_step: Step, what: str) -> None:
        if what == "begun":
            begun.set()
            assert go_on.wait(20)

    proposal = first.propose(FULL)
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(first.session.apply(proposal, watch=wait)))
    thread.start()
    assert begun.wait(20)
    with pytest.raises(LockedError, match="locked by apply"):
        second.apply(FULL)
    assert any(w.startswith("an apply is under way") for w in second.propose(FULL).plan.warnings)
    with pytest.raises(LockedError):
        unlock(second.ledger)
    go_on.set()
    thread.join(20)
    assert getattr(results[0], "revision", None) == 1
    assert second.apply(FULL) is None


def test_c17_a_lost_lock_stops_before_the_next_write(desk: Desk) -> None:
    """As after a failover of the database that lost our lock, or a forced unlock."""
    written: list[str] = []

    def lose(step: Step, what: str) -> None:
        if what == "done":
            written.append(step.address)
            if len(written) == 2:
                unlock(desk.ledger, force=True)
                StateLock(desk.ledger, "another").take()

    proposal = desk.propose(FULL)
    with pytest.raises(LockLostError, match="not ours any more"):
        desk.session.apply(proposal, watch=lose)
    q = Queue(desk.server, "q")
    assert written == ["q/paused", "q/concurrency"]
    assert reads.rate(q) is None
    assert desk.session.current() is None
    with desk.ledger.read() as connection:
        owner = owner_of(connection)
    assert owner is not None
    assert owner.what == "another"


def test_the_world_moves_between_the_question_and_the_answer(light_desk: Desk) -> None:
    proposal = light_desk.propose(FULL)
    control.set_concurrency(Queue(light_desk.server, "q"), 7)
    with pytest.raises(StaleError, match="q/concurrency was unset on the server, now it is 7"):
        light_desk.session.apply(proposal)
    with light_desk.ledger.read() as connection:
        assert owner_of(connection) is None
    assert not reads.is_paused(Queue(light_desk.server, "q"))


def test_rollback_and_destroy(desk: Desk) -> None:
    desk.apply("queues: {q: {stalled: {max_stalled: 1}, settings: {concurrency: 5}}}\n")
    desk.apply("queues: {q: {stalled: {max_stalled: 2}, settings: {concurrency: 6}}}\n")
    back = desk.session.propose_document(revisions.revision(desk.ledger, 1).document, "rollback")
    assert [s.address for s in back.plan.steps] == ["q/stalled", "q/concurrency"]
    assert desk.session.apply(back).revision == 3
    q = Queue(desk.server, "q")
    assert reads.concurrency(q) == 5
    gone = desk.session.propose_document(Document.empty(), "destroy")
    assert desk.session.apply(gone).revision == 4
    assert reads.concurrency(q) == 5
    current = desk.session.current()
    assert current is not None
    assert (current.document.queues, current.head.kind) == ({}, "destroy")
    with pytest.raises(BadInputError, match=r"no revision 9 \(revisions are 1 to 4"):
        revisions.revision(desk.ledger, 9)


def test_a_protected_queue_is_not_destroyed(light_desk: Desk) -> None:
    light_desk.apply("queues: {q: {protect: true, stalled: {}}}\n")
    gone = light_desk.session.propose_document(Document.empty(), "destroy")
    with pytest.raises(PlanRefusedError, match="q: protected"):
        light_desk.session.apply(gone)


def test_a_glob_that_takes_no_queue_is_an_error_that_names_its_line(light_desk: Desk) -> None:
    light_desk.server.write("HSET", keys_of("mail-eu").completed, "count", "1")
    with pytest.raises(BadInputError) as caught:
        light_desk.propose('queues:\n  "mial-*": {stalled: {}}\n  "mail-*": {stalled: {}}\n')
    assert "c.yaml:2:3: queues.mial-*: the glob 'mial-*' takes no queue" in str(caught.value)
    made = light_desk.propose('queues:\n  "mial-*": {optional: true}\n  "mail-*": {stalled: {}}\n').plan
    assert made.warnings == ["'mial-*' takes no queue yet"]
    assert [s.address for s in made.steps if s.queue] == ["mail-eu/stalled"]


def test_a_revision_runs_without_its_file(light_desk: Desk) -> None:
    """References stay references; a queue that came later is told from the layers that the revision has."""
    light_desk.env["URL"] = "unix:///nowhere"
    light_desk.apply(
        'server: {url: "${URL}"}\ndefaults: {stalled: {every: "${E:-7s}"}}\nqueues: {q: {}, "m-*": {optional: true}}\n'
    )
    light_desk.file.unlink()
    current = light_desk.session.current()
    assert current is not None
    wiring = current.document.wiring({"URL": "unix:///run/s"})
    assert wiring.server_url == "unix:///run/s"
    assert "unix:///nowhere" not in current.document.text
    assert current.document.layers({}).effective("m-9").stalled is not None
    stalled = current.document.queues["q"]["stalled"]
    assert stalled["every"] == "${E:-7s}"


def test_a_revision_keeps_which_of_two_globs_wins(make_desk: Callable[[], Desk], server: Server) -> None:
    control.set_concurrency(Queue(server, "mail-mail"), 1)
    make_desk().apply(
        "queues:\n  mail-*: {settings: {concurrency: 3}}\n  '*-mail': {optional: true, settings: {concurrency: 5}}\n"
    )
    assert reads.concurrency(Queue(server, "mail-mail")) == 5
    again = make_desk()
    applied = again.session.current()
    assert applied is not None
    assert applied.document.layers(again.env).effective("mail-mail").settings == {"concurrency": 5}
