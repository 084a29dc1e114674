"""Bad input of every kind: one clear error, nothing changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, DamagedError, EmqError, KindError
from emq_ops.protocol.key_names import queue_of_key
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, enqueue, jobs, leases, reads, recover, repeat, settle
from tests.support.keyspace import dump

JOB, OTHER, GROUP = "JOB0STBBIRAKHo", "JOB0STBBIRAKHp", "GRP0STBBIRAKHo"

Call = Callable[[Queue], object]

TRANSITIONS: dict[str, Call] = {
    "enqueue": lambda q: enqueue.enqueue(q, OTHER, b"x"),
    "enqueue_lane": lambda q: enqueue.enqueue(q, OTHER, b"x", group=GROUP),
    "schedule": lambda q: enqueue.schedule_in(q, OTHER, b"x", 5),
    "claim": lambda q: claims.claim(q, 1000),
    "claim_lane": lambda q: claims.claim_lane(q, 1000),
    "complete": lambda q: settle.complete(q, JOB, 1),
    "retry": lambda q: settle.retry(q, JOB, 1, settle.Failure(b"e", delay_ms=1, max_attempts=1)),
    "promote": recover.promote,
    "reap": recover.reap,
    "sweep": recover.sweep,
    "extend": lambda q: leases.extend(q, JOB, 1, 1000),
    "keep": lambda q: leases.keep(q, [(JOB, 1)], 1000),
    "remove": lambda q: jobs.remove(q, JOB),
    "reprocess": lambda q: jobs.reprocess(q, JOB),
    "requeue": lambda q: jobs.requeue(q, JOB),
    "update_payload": lambda q: jobs.update_payload(q, JOB, b"x"),
    "update_progress": lambda q: jobs.update_progress(q, JOB, b"x"),
    "add_log": lambda q: jobs.add_log(q, JOB, b"x"),
    "pause_queue": control.pause_queue,
    "pause_lane": lambda q: control.pause_lane(q, GROUP),
    "resume_lane": lambda q: control.resume_lane(q, GROUP),
    "limit_lane": lambda q: control.limit_lane(q, GROUP, 2),
    "drain": control.drain,
    "drain_lane": lambda q: control.drain_lane(q, GROUP),
    "register": lambda q: repeat.register(q, "r", 5, b"x"),
    "job_state": lambda q: reads.job_state(q, JOB),
}


def seed(q: Queue) -> None:
    """A grouped job with a lapsed lease and its row."""
    now = q.server.now_ms(q.name)
    q.server.write("HSET", q.keys.row(JOB), "state", "active", "attempts", "1", "payload", "p", "group", GROUP)
    q.server.write("ZADD", q.keys.active, now - 1000, JOB)
    q.server.write("HSET", q.keys.gactive, GROUP, "1")


def refused(q: Queue, call: Call, error: type[EmqError]) -> str:
    before = dump(q.server)
    with pytest.raises(error) as caught:
        call(q)
    assert dump(q.server) == before
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


def set_aside(q: Queue, call: Call, member: str = JOB) -> str:
    """The call passes the member over, changes nothing else, and names it; returns the reason."""
    before = dump(q.server)
    call(q)
    after = dump(q.server)
    named: dict[bytes, bytes] = after.pop(q.keys.aside)["hash"]
    assert after == before
    assert list(named) == [member.encode()]
    return named[member.encode()].decode()


@pytest.mark.parametrize("name", ["", "a{b", "a}b", "{q}", "a\0b", "x" * 201, "é" * 101, b"\xff"])
def test_queue_names_that_are_none(name: str, server: Server) -> None:
    with pytest.raises(BadInputError):
        Queue(server, name)


@pytest.mark.parametrize("name", ["a b", "mail[1]", "*", "?", "x" * 200, "é" * 100, "a:b", "emq"])
def test_queue_names_that_are_legal(name: str, server: Server) -> None:
    q = Queue(server, name)
    assert enqueue.enqueue(q, JOB, b"x")
    assert reads.counts(q).pending == 1
    assert server.queues() == [name]
    assert queue_of_key(q.keys.pending.encode()) == name


@pytest.mark.parametrize("bad", ["", "JOB", "job0STBBIRAKHo", "JOBzzzzzzzzzzz", "JOB0STBBIRAK-o", "JOB0STBBIRAKHo\n"])
@pytest.mark.parametrize(
    "call",
    [
        lambda q, i: enqueue.enqueue(q, i, b"x"),
        lambda q, i: enqueue.enqueue_many(q, [enqueue.NewJob(OTHER, b"x"), enqueue.NewJob(i, b"x")]),
        lambda q, i: enqueue.schedule_in(q, i, b"x", 1),
        lambda q, i: settle.complete(q, i, 1),
        lambda q, i: settle.retry(q, i, 1, settle.Failure(b"", delay_ms=1, max_attempts=1)),
        lambda q, i: leases.extend(q, i, 1, 1),
        lambda q, i: leases.keep(q, [(i, 1)], 1),
        lambda q, i: jobs.remove(q, i),
        lambda q, i: jobs.requeue(q, i),
        lambda q, i: jobs.update_progress(q, i, b"x"),
        lambda q, i: reads.job_state(q, i),
        lambda q, i: repeat.advance(q, "r", i),
        lambda q, i: recover.reap_lane(q, i.replace("JOB", "GRP")),
    ],
)
def test_malformed_ids_never_reach_the_server(call: Callable[[Queue, str], object], bad: str, server: Server) -> None:
    refused(Queue(server, "q"), lambda q: call(q, bad), BadInputError)


def test_an_id_of_another_kind(server: Server) -> None:
    text = refused(Queue(server, "q"), lambda q: enqueue.enqueue(q, "EVT0STBBIRAKHo", b"x"), KindError)
    assert "EMQKIND" in text


@pytest.mark.parametrize(
    "call",
    [
        lambda q: claims.claim(q, 0),
        lambda q: claims.claim(q, -5),
        lambda q: claims.claim_lane(q, 0),
        lambda q: claims.claim_batch(q, 1000, 0),
        lambda q: leases.extend(q, JOB, 1, 0),
        lambda q: leases.extend(q, JOB, 1, -1),
        lambda q: leases.extend_many(q, [], 0),
        lambda q: leases.keep(q, [(JOB, 0)], 5),
        lambda q: recover.sweep(q, 0),
        lambda q: recover.sweep(q, 1, 0),
        lambda q: recover.promote(q, 0),
        lambda q: recover.reap(q, -1),
        lambda q: control.limit_lane(q, GROUP, 0),
        lambda q: control.obliterate(q, budget=0),
        lambda q: jobs.add_log(q, JOB, b"x", keep=-1),
        lambda q: enqueue.schedule_in(q, OTHER, b"x", -1),
        lambda q: enqueue.schedule_at(q, OTHER, b"x", 1_796_000_000),
        lambda q: enqueue.schedule_at(q, OTHER, b"x", 1_796_000_000_000_000),
        lambda q: settle.retry(q, JOB, 1, settle.Failure(b"", delay_ms=-1, max_attempts=1)),
        lambda q: settle.retry(q, JOB, 1, settle.Failure(b"", delay_ms=1, max_attempts=0)),
        lambda q: repeat.register(q, "r", 0, b""),
        lambda q: repeat.register(q, "", 5, b""),
        lambda q: reads.browse(q, "pending", limit=0),
        lambda q: reads.browse(q, "active"),
        lambda q: enqueue.enqueue(q, OTHER, 5),
    ],
)
def test_numbers_that_can_not_be(call: Call, server: Server) -> None:
    q = Queue(server, "q")
    seed(q)
    refused(q, call, BadInputError)


@pytest.mark.parametrize("payload", [b"", b"\x00\xff\xfe\r\n", b"x" * (8 << 20)], ids=["empty", "binary", "8MiB"])
def test_payloads_of_any_size_and_bytes(payload: bytes, server: Server) -> None:
    q = Queue(server, "q")
    assert enqueue.enqueue(q, JOB, payload)
    claim = claims.claim(q, 1000)
    assert claim is not None
    assert claim.payload == payload
    assert jobs.update_payload(q, JOB, payload[::-1])
    assert settle.retry(q, JOB, 1, settle.Failure(payload, delay_ms=0, max_attempts=1)) is settle.Retried.DEAD
    row = jobs.read_row(q, JOB)
    assert row is not None
    assert (row[b"payload"], row[b"last_error"]) == (payload[::-1], payload)


KEYS = ["pending", "active", "schedule", "dead", "ring", "paused", "glimit", "gactive", "wake", "meta"]
TOUCHES = {  # which keys each transition may write or must read, so that it has to refuse another type there
    "enqueue": ["pending"],
    "enqueue_lane": ["ring", "paused", "glimit", "gactive", "wake", "lane"],
    "schedule": ["schedule"],
    "claim": ["pending", "active", "meta"],
    "claim_lane": ["ring", "active", "meta"],
    "complete": [
        "active",
        "pending",
        "schedule",
        "dead",
        "ring",
        "paused",
        "glimit",
        "gactive",
        "wake",
        "lane",
    ],
    "retry": ["active", "schedule", "dead", "ring", "gactive", "lane"],
    "reap": ["active", "pending", "ring", "paused", "glimit", "gactive", "wake", "lane"],
    "sweep": ["active", "pending", "dead", "ring", "paused", "glimit", "gactive", "wake", "lane"],
    "extend": ["active"],
    "keep": ["active"],
    "remove": ["active", "pending", "schedule", "dead", "ring", "gactive", "lane"],
    "reprocess": ["dead"],
    "requeue": ["dead"],
    "add_log": ["logs"],
    "pause_queue": ["meta"],
    "pause_lane": ["paused", "ring"],
    "resume_lane": ["paused", "ring", "wake", "lane"],
    "limit_lane": ["glimit", "ring", "paused", "lane"],
    "drain": ["pending"],
    "drain_lane": ["lane", "ring"],
    "register": ["repeat"],
    "job_state": ["pending", "active"],
    "promote": ["schedule", "pending"],
}


def key_named(q: Queue, name: str) -> str:
    k = q.keys
    named = {"lane": k.lane(GROUP), "logs": k.book(JOB, "logs")}
    return named.get(name) or k.base + name


@pytest.mark.parametrize(("verb", "key"), [(verb, key) for verb, keys in TOUCHES.items() for key in keys])
def test_a_key_of_another_type(verb: str, key: str, server: Server) -> None:
    q = Queue(server, "q")
    seed(q)
    server.write("DEL", key_named(q, key))
    server.write("SET", key_named(q, key), "not what is expected")
    text = refused(q, TRANSITIONS[verb], DamagedError)
    assert key_named(q, key) in text


@pytest.mark.parametrize(
    "verb", ["complete", "retry", "remove", "update_payload", "update_progress", "add_log", "sweep", "reap"]
)
def test_a_row_of_another_type(verb: str, server: Server) -> None:
    q = Queue(server, "q")
    seed(q)
    server.write("DEL", q.keys.row(JOB))
    server.write("SET", q.keys.row(JOB), "no hash")
    if verb in ("sweep", "reap"):
        assert q.keys.row(JOB) in set_aside(q, TRANSITIONS[verb])
    else:
        assert q.keys.row(JOB) in refused(q, TRANSITIONS[verb], DamagedError)


@pytest.mark.parametrize("verb", ["claim", "claim_lane", "complete", "retry", "extend"])
@pytest.mark.parametrize("attempts", [None, "", "x", "1.5", "99999999999999999999"])
def test_a_row_without_attempts(verb: str, attempts: str | None, server: Server) -> None:
    q = Queue(server, "q")
    seed(q)
    if verb == "claim":
        server.write("ZADD", q.keys.pending, 0, JOB)
    if verb == "claim_lane":
        server.write("ZADD", q.keys.lane(GROUP), 0, JOB)
        server.write("RPUSH", q.keys.ring, GROUP)
    server.write("HDEL", q.keys.row(JOB), "attempts")
    if attempts is not None:
        server.write("HSET", q.keys.row(JOB), "attempts", attempts)
    if verb.startswith("claim"):
        assert "attempts" in set_aside(q, TRANSITIONS[verb])
    else:
        assert "attempts" in refused(q, TRANSITIONS[verb], DamagedError)


@pytest.mark.parametrize("stalled", ["", "x", "1.5", "1e3", " 1", "99999999999999999999"])
def test_a_stall_count_that_is_no_number(stalled: str, server: Server) -> None:
    q = Queue(server, "q")
    seed(q)
    server.write("HSET", q.keys.row(JOB), "stalled", stalled)
    assert "stalled" in set_aside(q, recover.sweep)


@pytest.mark.parametrize("score", [0, 5, 1_796_000_000, "-inf"])
@pytest.mark.parametrize("verb", ["sweep", "reap", "promote"])
def test_a_score_that_is_no_ms_of_our_days(verb: str, score: int | str, server: Server) -> None:
    q = Queue(server, "q")
    seed(q)
    enqueue.schedule_in(q, OTHER, b"x", 0)
    server.write(
        "ZADD", q.keys.schedule if verb == "promote" else q.keys.active, score, OTHER if verb == "promote" else JOB
    )
    assert "score" in set_aside(q, TRANSITIONS[verb], OTHER if verb == "promote" else JOB)


@pytest.mark.parametrize("verb", ["sweep", "reap"])
def test_a_member_that_is_no_id(verb: str, server: Server) -> None:
    q = Queue(server, "q")
    seed(q)
    server.write("DEL", q.keys.active)
    server.write("ZADD", q.keys.active, q.server.now_ms("q") - 5, b"\x1b[31mevil\n")
    assert "\x1b" not in set_aside(q, TRANSITIONS[verb], "\x1b[31mevil\n")


def test_a_group_that_is_no_id(server: Server) -> None:
    q = Queue(server, "q")
    seed(q)
    server.write("HSET", q.keys.row(JOB), "group", "../../other")
    for verb in ("complete", "retry", "remove"):
        refused(q, TRANSITIONS[verb], DamagedError)
    for verb in ("sweep", "reap"):
        server.write("DEL", q.keys.aside)
        assert "group" in set_aside(q, TRANSITIONS[verb])


def test_counters_that_are_no_numbers(server: Server) -> None:
    q = Queue(server, "q")
    seed(q)
    server.write("HSET", q.keys.gactive, GROUP, "some")
    for verb in ("sweep", "reap", "complete", "retry", "remove"):
        refused(q, TRANSITIONS[verb], DamagedError)


def test_keys_refuse_what_would_be_another_key() -> None:
    k = keys_of("q")
    for build in (lambda: k.row("x"), lambda: k.lane(JOB), lambda: k.book(JOB, "x"), lambda: k.stream("a:archived")):
        with pytest.raises(EmqError):
            build()
    assert ids.is_valid(JOB)
