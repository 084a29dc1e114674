"""Random transitions on a real server: after each step every job is in exactly one place, and nothing was lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from emq_ops.protocol import ids
from emq_ops.protocol.errors import StaleTokenError, StateError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, enqueue, jobs, leases, reads, recover, settle
from tests.support.invariants import QueueView, violations
from tests.support.keyspace import dump

GROUPS = [f"GRP{ids.encode62(n)}" for n in (1, 2, 3)]
LONG, SHORT = 600_000, 1
groups = st.sampled_from(GROUPS)
draw = st.integers(0, 1 << 30)


class Transitions(RuleBasedStateMachine):
    """The model: which jobs live, the claims in hand (stale ones too), lanes that a sweep left off the ring."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        for key in set(self.server.scan()):
            self.server.write("UNLINK", key)
        self.q = Queue(self.server, "machine [*]")
        self.live: dict[str, bytes] = {}
        self.claimed: list[claims.Claim] = []
        self.off_ring: frozenset[str] = frozenset()
        self.finished = 0

    def view(self) -> QueueView:
        return QueueView(dump(self.server), self.q.name)

    def one(self, place: str, pick: int) -> str | None:
        members = self.view().zset(place)
        return members[pick % len(members)] if members else None

    @rule(group=st.none() | groups, payload=st.binary(max_size=12))
    def enqueue_one(self, group: str | None, payload: bytes) -> None:
        job = ids.mint()
        assert enqueue.enqueue(self.q, job, payload, group=group) is True
        assert enqueue.enqueue(self.q, job, b"other", group=group) is False
        self.live[job] = payload

    @rule(group=groups, count=st.integers(1, 4))
    def enqueue_several(self, group: str, count: int) -> None:
        new = [enqueue.NewJob(ids.mint(), b"m", group if n % 2 else None) for n in range(count)]
        assert enqueue.enqueue_many(self.q, new) == [True] * count
        self.live.update({n.job: n.payload for n in new})

    @rule(group=st.none() | groups, delay=st.sampled_from([0, LONG]))
    def schedule(self, group: str | None, delay: int) -> None:
        job = ids.mint()
        assert enqueue.schedule_in(self.q, job, b"s", delay, group=group)
        self.live[job] = b"s"

    @rule(lease=st.sampled_from([SHORT, LONG]), lane=st.booleans(), count=st.integers(1, 3))
    def claim(self, lease: int, lane: bool, count: int) -> None:
        take = claims.claim_lane_batch if lane else claims.claim_batch
        for claim in take(self.q, lease, count):
            assert self.live[claim.job] == claim.payload
            self.claimed.append(claim)
        if lease == SHORT:  # let it lapse by the server's clock, which alone prices leases
            then = self.server.now_ms(self.q.name) + SHORT
            while self.server.now_ms(self.q.name) <= then:
                pass

    def settle_one(self, pick: int) -> tuple[claims.Claim, bool] | None:
        if not self.claimed:
            return None
        claim = self.claimed.pop(pick % len(self.claimed))
        row = jobs.read_row(self.q, claim.job)
        return claim, row is not None and int(row[b"attempts"]) == claim.token

    @rule(pick=draw)
    def complete(self, pick: int) -> None:
        found = self.settle_one(pick)
        if found is None:
            return
        claim, current = found
        if claim.job not in self.live:
            assert settle.complete(self.q, claim.job, claim.token, release=True) is False
        elif current:
            assert settle.complete(self.q, claim.job, claim.token, release=True) is True
            assert settle.complete(self.q, claim.job, claim.token, release=True) is False
            del self.live[claim.job]
            self.finished += 1
        else:
            with pytest.raises(StaleTokenError):
                settle.complete(self.q, claim.job, claim.token, release=True)

    @rule(pick=draw, delay=st.sampled_from([0, LONG]), attempts=st.integers(1, 4))
    def retry(self, pick: int, delay: int, attempts: int) -> None:
        found = self.settle_one(pick)
        if found is None:
            return
        claim, current = found
        failure = settle.Failure(b"\xff boom", delay, attempts)
        row = self.view().rows.get(claim.job, {})
        if not current:
            with pytest.raises(StaleTokenError):
                settle.retry(self.q, claim.job, claim.token, failure, release=True)
            return
        went = settle.retry(self.q, claim.job, claim.token, failure, release=True)
        dies = claim.token >= attempts or row[b"state"] == b"dead"  # it was dead-lettered while it ran
        assert went is (settle.Retried.DEAD if dies else settle.Retried.SCHEDULED)

    @rule(limit=st.integers(1, 5))
    def promote(self, limit: int) -> None:
        assert 0 <= recover.promote(self.q, limit) <= limit

    @rule(limit=st.integers(1, 5), group=st.none() | groups)
    def reap(self, limit: int, group: str | None) -> None:
        before = len(self.view().zset("active"))
        taken = recover.reap(self.q, limit) if group is None else recover.reap_lane(self.q, group, limit)
        assert before - len(self.view().zset("active")) == taken <= limit

    @rule(max_stalled=st.integers(1, 3), limit=st.integers(1, 5))
    def sweep(self, max_stalled: int, limit: int) -> None:
        swept = recover.sweep(self.q, max_stalled, limit)
        assert len(swept.recovered) + len(swept.dead) <= limit
        rows = self.view().rows
        assert all(rows[j][b"last_error"] == b"stalled" for j in swept.dead)
        lanes = {rows[j][b"group"].decode() for j in swept.dead if b"group" in rows[j]}
        # As recorded (sweep_stalled-027): a dead-lettered job's place does not put its lane back on the ring.
        self.off_ring |= frozenset(lanes)

    @rule(pick=draw, lease=st.just(LONG))
    def extend(self, pick: int, lease: int) -> None:
        if not self.claimed:
            return
        claim = self.claimed[pick % len(self.claimed)]
        active = set(self.view().zset("active"))
        lost = leases.keep(self.q, [(c.job, c.token) for c in self.claimed], lease)
        assert set(self.view().zset("active")) == active
        if claim.job in lost:
            return
        assert leases.extend(self.q, claim.job, claim.token, lease) is leases.Extended.DONE

    @rule(pick=draw, place=st.sampled_from(["pending", "schedule", "dead", "active"]))
    def remove(self, pick: int, place: str) -> None:
        job = self.one(place, pick)
        if job is None:
            return
        self.server.write("DEL", self.q.keys.book(job, "lock"))
        jobs.add_log(self.q, job, b"line")
        assert jobs.remove(self.q, job) is True
        assert jobs.remove(self.q, job) is False
        del self.live[job]

    @rule(pick=draw, clear=st.booleans())
    def revive(self, pick: int, clear: bool) -> None:
        job = self.one("dead", pick)
        if job is not None:
            assert jobs.requeue(self.q, job) if clear else jobs.reprocess(self.q, job)
        waiting = self.one("pending", pick)
        if waiting is not None:
            with pytest.raises(StateError):
                jobs.reprocess(self.q, waiting)

    @rule(group=groups, verb=st.sampled_from([control.pause_lane, control.resume_lane, control.unlimit_lane]))
    def lane_verb(self, group: str, verb: object) -> None:
        verb(self.q, group)  # type: ignore[operator]

    @rule(group=groups, limit=st.integers(1, 2))
    def limit(self, group: str, limit: int) -> None:
        control.limit_lane(self.q, group, limit)

    @precondition(lambda self: len(self.live) > 8)
    @rule(group=st.none() | groups)
    def drain(self, group: str | None) -> None:
        gone = self.view().zset("pending") if group is None else self.view().lanes.get(group, [])
        count = control.drain(self.q) if group is None else control.drain_lane(self.q, group)
        assert count == len(gone)
        for job in gone:
            del self.live[job]

    @invariant()
    def whole(self) -> None:
        assert violations(self.server, self.q.name, off_ring_allowed=self.off_ring) == []
        view = self.view()
        assert {job: row[b"payload"] for job, row in view.rows.items()} == self.live
        assert reads.counts(self.q).completed == self.finished
        self.off_ring -= frozenset(view.items("ring", "list"))


@contextmanager
def machine_on(server: Server) -> Iterator[type[Transitions]]:
    Transitions.server = server
    yield Transitions


def test_random_transitions_keep_every_invariant(server: Server) -> None:
    with machine_on(server) as machine:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )


@pytest.mark.soak(minutes=3)
def test_random_transitions_for_long(server: Server) -> None:
    with machine_on(server) as machine:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=400, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
