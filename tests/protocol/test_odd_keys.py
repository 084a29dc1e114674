"""Keys and rows of other types and with odd contents: one clear error or set aside, nothing changed."""

from __future__ import annotations

import pytest

from emq_ops.protocol.errors import DamagedError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import enqueue, recover
from tests.protocol.refusing import GROUP, JOB, OTHER, TRANSITIONS, refused, seed, set_aside

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
