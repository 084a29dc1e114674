"""The shared cases that fall on the ground: C13 (Lua numbers), C16 (limits), C20 (selectors)."""

from __future__ import annotations

import hashlib

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import Script, load
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, enqueue, jobs, leases, reads, recover
from tests.support.keyspace import dump


def test_c13_lua_puts_big_numbers_into_text_whole(server: Server) -> None:
    lib = load("extend").source.split(b"local id = ARGV")[0]
    source = lib + b"return { digits(tonumber(ARGV[1])), digits(9007199254740991) }"
    probe = Script("probe", source, hashlib.sha1(source, usedforsecurity=False).hexdigest())
    assert server.run(probe, ["x"], ["1722945600123456"]) == [b"1722945600123456", b"9007199254740991"]


def test_c13_deadlines_keep_every_digit(server: Server) -> None:
    q = Queue(server, "q")
    enqueue.enqueue(q, ids.mint(), b"x")
    before = server.now_ms("q")
    claim = claims.claim(q, 86_400_000)
    assert claim is not None
    after = server.now_ms("q")
    score = server.read("ZSCORE", q.keys.active, claim.job)
    assert score.isdigit()
    assert before + 86_400_000 <= int(score) <= after + 86_400_000


def _lapse(server: Server, q: Queue) -> None:
    """Waits, by the server's clock, until every lease of 1 ms has lapsed."""
    then = server.now_ms(q.name) + 1
    while server.now_ms(q.name) <= then:
        pass


def test_c16_250_lapsed_leases_in_slices(server: Server) -> None:
    q = Queue(server, "mail")
    minted = [ids.mint() for _ in range(250)]
    assert all(enqueue.enqueue_many(q, [enqueue.NewJob(i, b"x") for i in minted]))
    assert len(claims.claim_batch(q, 1, 1000)) == 250
    _lapse(server, q)
    found: list[str] = []
    while swept := recover.sweep(q, max_stalled=2, limit=100).recovered:
        assert len(swept) <= 100
        found += swept
    assert sorted(found) == minted
    assert reads.counts(q).pending == 250


def test_c16_one_call_over_what_lua_can_unpack(server: Server) -> None:
    q = Queue(server, "mail")
    minted = [ids.mint() for _ in range(20_000)]
    for first in range(0, len(minted), 5000):
        new = [enqueue.NewJob(i, b"x") for i in minted[first : first + 5000]]
        assert all(enqueue.enqueue_many(q, new))
    assert len(claims.claim_batch(q, 1, 20_000)) == 20_000
    _lapse(server, q)
    assert len(recover.sweep(q, max_stalled=1, limit=20_000).dead) == 20_000
    assert reads.counts(q).dead == 20_000
    control.pause_queue(q)
    while not control.obliterate(q, budget=500):
        pass
    assert dump(server) == {}


def test_c16_unequal_leases_lapse_by_their_own_length(server: Server) -> None:
    q = Queue(server, "mail")
    short, long = ids.mint(), ids.mint()
    for job, lease in ((short, 1), (long, 300_000)):
        enqueue.enqueue(q, job, b"x")
        claims.claim(q, lease)
    _lapse(server, q)
    assert recover.sweep(q, max_stalled=3).recovered == [short]
    assert reads.job_state(q, long) is reads.JobState.ACTIVE


def test_c20_one_of_two_dead_jobs(server: Server) -> None:
    q = Queue(server, "mail")
    one, other = ids.mint(), ids.mint()
    for job in (one, other):
        enqueue.enqueue(q, job, b"x")
        claims.claim(q, 1)
    _lapse(server, q)
    assert recover.sweep(q).dead == [one, other]
    assert jobs.remove(q, one)
    assert reads.job_state(q, other) is reads.JobState.DEAD
    assert reads.job_state(q, one) is reads.JobState.ABSENT


def test_c20_a_queue_named_like_a_glob_is_only_itself(server: Server) -> None:
    globbed, plain = Queue(server, "mail[1]"), Queue(server, "mail1")
    for q in (globbed, plain):
        enqueue.enqueue(q, ids.mint(), b"x")
        enqueue.enqueue(q, ids.mint(), b"x", group=ids.mint("GRP"))
    kept = {key: value for key, value in dump(server).items() if key.startswith(plain.keys.base)}
    control.pause_queue(globbed)
    assert control.obliterate(globbed) is True
    assert dump(server) == kept
    assert server.queues() == ["mail1"]


def test_keep_never_revives(server: Server) -> None:
    q = Queue(server, "mail")
    job = ids.mint()
    enqueue.enqueue(q, job, b"x")
    claim = claims.claim(q, 1)
    assert claim is not None
    _lapse(server, q)
    recover.sweep(q, max_stalled=5)
    assert leases.keep(q, [(job, claim.token)], 5000) == [job]
    assert reads.job_state(q, job) is reads.JobState.PENDING
