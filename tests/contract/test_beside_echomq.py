"""Beside the reference's own workers: what they leave behind, and what they hold, is read as they mean it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emq_ops.audit.doctor import examine, mend
from emq_ops.audit.doctor.consult import consult
from emq_ops.ledger import acts, deaths
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.act import act
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.passes.acts.targets import choose
from emq_ops.protocol import ids
from emq_ops.protocol.errors import WireError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import cancel, enqueue, jobs, reads, repeat
from emq_ops.protocol.transitions.cancel import CancelAnswer
from tests.audit.working import failed, stalled
from tests.support.cli import emq
from tests.support.passing import trimmed
from tests.support.valkey import Valkey


def by_key(q: Queue, job: str) -> None:
    q.server.write("SET", q.keys.book(job, "lock"), "a worker's", "PX", 60_000)


def by_field(q: Queue, job: str) -> None:
    q.server.write("HSET", q.keys.row(job), "lock", "a worker's")


@pytest.fixture
def q(server: Server) -> Queue:
    return Queue(server, "orders")


@pytest.mark.parametrize("hold", [by_key, by_field])
def test_a_held_job_is_neither_cancelled_nor_removed(
    q: Queue, hold: Callable[[Queue, str], None], ledger: Ledger
) -> None:
    job, dead = ids.mint(), failed(q, b"boom")
    enqueue.enqueue(q, job, b"x")
    for one in (job, dead):
        hold(q, one)
    assert cancel.request(q, job) is CancelAnswer.LOCKED
    for one in (job, dead):
        with pytest.raises(WireError, match="EMQLOCK"):
            jobs.remove(q, one)
    report = act(q.server, acts.REMOVE, choose(q.server, "orders", DeadSelection()), ledger)
    assert (report.done, report.left) == (0, {"held": 1})
    assert (reads.job_state(q, job).value, reads.job_state(q, dead).value) == ("pending", "dead")


def completed_while_dead(q: Queue) -> str:
    """A job that was dead-lettered while a worker of the reference ran it, and that this worker then completed: the row
    goes, the entry in the dead set stays, and so do the logs."""
    job = failed(q, b"boom")
    jobs.add_log(q, job, b"a line")
    q.server.write("UNLINK", q.keys.row(job))
    q.server.write("HINCRBY", q.keys.completed, "count", 1)
    return job


def test_a_dead_job_that_was_completed_is_no_second_death(q: Queue, ledger: Ledger) -> None:
    """It is not counted in `keep`, nor archived, and the pass says what it was."""
    job, other = failed(q, b"boom"), failed(q, b"boom")
    trimmed(q.server, ledger, keep=2, queue="orders")
    q.server.write("UNLINK", q.keys.row(job))
    late = completed_while_dead(q)
    report = trimmed(q.server, ledger, keep=1, queue="orders")
    assert (report.removed, report.victims) == (0, 0)
    assert any("2 in the dead set were completed" in note for note in report.notes)
    found = {death.job: death for death in deaths.iterate(ledger)}
    assert set(found) == {job, other}
    assert (found[job].gone_how, found[other].gone_ms) == ("completed", None)
    assert late not in found
    again = trimmed(q.server, ledger, keep=1, queue="orders")
    assert again.found_dead == 0
    assert len(list(deaths.iterate(ledger))) == 2


def test_logs_that_outlive_their_job_are_ordinary(q: Queue, valkey: Valkey, ledger: Ledger, state: str) -> None:
    gone = ids.mint()
    q.server.write("RPUSH", q.keys.book(gone, "logs"), "a line")
    assert jobs.read_logs(q, gone) == []
    diagnosis = examine(q.server, ["orders"], settle=0)
    assert diagnosis.findings == []
    assert any(
        "1 of left_logs: logs of a job that is gone" in note for note in consult(q.server, ["orders"], ledger).notes
    )
    ran = emq("doctor", "--url", valkey.url, "--state", state)
    assert (ran.code, "1 of left_logs: logs of a job that is gone" in ran.err) == (0, True)
    asked = examine(q.server, ["orders"], settle=0, listed=frozenset({"left_logs"}))
    assert [finding.kind for finding in asked.findings] == ["left_logs"]
    assert [one.outcome for one in mend(q.server, asked.findings, also=frozenset({"left_logs"}))] == ["mended"]
    assert q.server.read("EXISTS", q.keys.book(gone, "logs")) == 0
    # Of a job that lives they are its own.
    live = stalled(q, 1)[0]
    jobs.add_log(q, live, b"kept")
    assert jobs.read_logs(q, live) == [b"kept"]


def test_a_repeatable_runs_at_once_and_then_a_period_after_it_ran(q: Queue) -> None:
    assert repeat.register(q, "tick", 3_600_000, b"t")
    assert repeat.due(q) == ["tick"]
    q.server.write("ZADD", q.keys.repeat, q.server.now_ms(q.name) - 5_000_000, "tick")  # long overdue
    before = q.server.now_ms(q.name)
    assert repeat.advance(q, "tick", ids.mint())
    assert before + 3_600_000 <= repeat.repeatables(q)[0].next_ms <= q.server.now_ms(q.name) + 3_600_000
    assert repeat.replace(q, "tock", 3_600_000, b"t")  # as the YAML declares one
    assert repeat.due(q) == ["tock"]
    assert repeat.advance(q, "tock", ids.mint())
    assert not repeat.replace(q, "tock", 7_200_000, b"t")
    assert repeat.due(q) == []
