"""The doctor: each kind of damage is found, nothing else is; mended, and nothing else touched."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from emq_ops.audit.doctor import KINDS, examine, kinds_named, mend
from emq_ops.protocol.conformance.keyspace import load_keyspace
from emq_ops.protocol.conformance.replay import read_vectors
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, enqueue
from tests.audit.damage import DAMAGES, GONE, Damage
from tests.audit.healthy import LONG_MS, Healthy, Traffic, build
from tests.support.invariants import violations
from tests.support.keyspace import dump, load_live, recorded
from tests.support.valkey import Valkey


def found(server: Server, **options: Any) -> set[tuple[str, str]]:
    diagnosis = examine(server, server.queues(), settle=0, **options)
    return {(f.kind, f.subject.decode()) for f in diagnosis.findings}


def test_the_live_keyspace_has_nothing_to_mend(server: Server) -> None:
    load_live(server)
    before = dump(server)
    diagnosis = examine(server, server.queues())
    assert diagnosis.healthy
    assert diagnosis.notes == ["{emq}:version is echomq:3.0.0"]
    assert diagnosis.queues == ["mail", "orders", "render", "reports"]
    assert dump(server) == before


def test_a_healthy_queue_is_healthy(server: Server) -> None:
    build(server, size=300)
    assert violations(server, "orders") == []
    assert found(server) == set()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.name)
def test_each_damage_alone(server: Server, damage: Damage) -> None:
    world = build(server, size=60)
    server.write("UNLINK", world.k.wake)
    before = dump(server)
    subject = damage.plant(server, world)
    planted = dump(server)
    diagnosis = examine(server, ["orders"], settle=0)
    assert [(f.kind, f.subject.decode()) for f in diagnosis.findings] == [(damage.kind, subject)]
    assert dump(server) == planted
    (outcome,) = mend(server, diagnosis.findings)
    if not damage.mended:
        assert outcome.outcome == "left"
        assert outcome.why
        assert dump(server) == planted
        return
    assert outcome.outcome == "mended"
    assert found(server) == set()
    assert damage.kind in ("bad_count", "odd_member") or violations(server, "orders") == []
    if damage.after is not None:
        assert damage.after(server, world, subject)
    if damage.whole:
        after = dump(server)
        row = world.k.row(subject) if subject in world.jobs else ""
        for key in (row, world.k.wake):  # attempts and wake tokens may differ: see the kinds
            before.pop(key, None)
            after.pop(key, None)
        assert after == before


def static_part(server: Server, world: Healthy, leave_out: set[str]) -> dict[str, Any]:
    """The keyspace without what traffic makes, and without the subjects that were damaged."""
    kept, lanes = world.jobs - leave_out, set(world.lane_jobs) - leave_out
    out: dict[str, Any] = {}
    for key, content in dump(server).items():
        name = key.removeprefix(world.k.base)
        kind, value = next(iter(content.items()))
        if name.startswith("job:"):
            if name[4:18] in kept:
                out[name] = value
        elif name == "repeat":
            out[name] = {m: s for m, s in value.items() if f"repeat:{m.decode()}" not in leave_out}
        elif kind == "zset":
            out[name] = {m: s for m, s in value.items() if m.decode() in kept}
        elif name in ("gactive", "glimit", "paused", "ring"):
            out[name] = [(v, value[v] if kind == "hash" else 0) for v in value if v.decode() in lanes]
        elif name not in ("wake", *leave_out) and not name.startswith(("metrics:", "g:")):
            out[name] = value
    return {name: value for name, value in out.items() if value}  # a key may stand for the traffic alone


def test_all_damage_at_once_among_ten_thousand_under_traffic(server: Server, valkey: Valkey) -> None:
    world = build(server, size=10_000, lanes=30)
    for group in world.free:  # traffic would take their jobs
        control.pause_lane(world.q, group)
    # Left out: what stops the traffic itself, and what needs a lane that may be served.
    stops = ("bad_count", "bad_ceiling", "off_ring", "ring_twice", "odd_lane_name", "on_ring", "long_wake")
    damages = [d for d in DAMAGES if d.kind not in stops and d.name != "gactive missing, lane on the ring"]
    with Traffic(valkey.url) as traffic:
        planted = {(d.kind, d.plant(server, world)): d for d in damages}
        victims = {subject for _, subject in planted}
        before = static_part(server, world, victims)
        start = traffic.settled
        diagnosis = examine(server, ["orders"])
        assert {(f.kind, f.subject.decode()) for f in diagnosis.findings} == set(planted)
        assert traffic.settled > start
        for outcome in mend(server, diagnosis.findings):
            damage = planted[outcome.finding.kind, outcome.finding.subject.decode()]
            assert outcome.outcome == ("mended" if damage.mended else "left"), (damage.name, outcome.why)
        left = {key for key, damage in planted.items() if not damage.mended}
        assert {(f.kind, f.subject.decode()) for f in examine(server, ["orders"]).findings} == left
        assert static_part(server, world, victims) == before


def test_a_finding_that_is_gone_is_left_alone(server: Server) -> None:
    world = build(server)
    server.write("ZADD", world.k.dead, 0, GONE)
    server.write("HSET", world.k.row(world.dead[0]), "state", "pending")
    findings = examine(server, ["orders"], settle=0).findings
    server.write("ZREM", world.k.dead, GONE)
    server.write("HSET", world.k.row(world.dead[0]), "state", "dead")
    before = dump(server)
    assert [m.outcome for m in mend(server, findings)] == ["gone", "gone"]
    assert dump(server) == before


def test_kinds_that_are_not_safe_are_mended_when_asked_for(server: Server) -> None:
    world = build(server)
    for damage in DAMAGES:
        if damage.kind in ("bad_limit", "bad_ceiling", "repeat_not_listed"):
            damage.plant(server, world)
    findings = examine(server, ["orders"], settle=0).findings
    assert {m.outcome for m in mend(server, findings)} == {"left"}
    also = frozenset(f.kind for f in findings)
    assert {m.outcome for m in mend(server, findings, also=also)} == {"mended"}
    assert found(server) == set()
    with pytest.raises(BadInputError, match="no kind of damage is called 'bad-limit'"):
        kinds_named(["bad-limit"])


def test_a_sweep_that_kills_a_lane_at_its_limit_leaves_it_off_the_ring(server: Server) -> None:
    """As recorded (sweep_stalled-027): the lane's other jobs would wait for ever; this is found and mended."""
    [vector] = [v for v in read_vectors(recorded("transitions.json")) if v.name == "sweep_stalled-027"]
    load_keyspace(server, vector.then, server.now_ms("orders"))
    q = Queue(server, "orders")
    assert claims.claim_lane(q, LONG_MS) is None
    diagnosis = examine(server, ["orders"], settle=0)
    assert [(f.kind, f.subject) for f in diagnosis.findings] == [("off_ring", b"GRP0SSDOn4k3qS")]
    assert [m.outcome for m in mend(server, diagnosis.findings)] == ["mended"]
    taken = claims.claim_lane(q, LONG_MS)
    assert taken is not None
    assert taken.job == "JOB0SS8IOLQaAc"


def test_a_set_of_another_type_is_told_and_hides_nothing_else(server: Server) -> None:
    world = build(server)
    server.write("UNLINK", world.k.schedule)
    server.write("SET", world.k.schedule, "x")
    server.write("HSET", world.k.failed, "count", "many")
    diagnosis = examine(server, ["orders"], settle=0)
    assert {(f.kind, f.subject) for f in diagnosis.findings} == {
        ("wrong_type", b"schedule"),
        ("bad_count", b"metrics:failed"),
    }
    assert "jobs were not judged, since schedule has another type" in diagnosis.notes[0]


def test_a_queue_whose_name_has_globs_is_looked_at_alone(server: Server) -> None:
    for name in ("mail[1]", "mail1", "mail*", "mail\\x", "mail^-?"):
        server.write("ZADD", Queue(server, name).keys.dead, 0, GONE)
    for name in ("mail[1]", "mail*", "mail\\x", "mail^-?"):
        diagnosis = examine(server, [name], settle=0)
        assert [(f.queue, f.kind) for f in diagnosis.findings] == [(name, "member_without_row")]
        assert diagnosis.looked == 1
    assert len(examine(server, server.queues(), settle=0).findings) == 5


def test_keys_beside_the_version_are_reported_and_the_fence_never_written(server: Server) -> None:
    build(server)
    server.write("SET", "{emq}:notes", "x")
    server.write("SET", "{emq}:version", "echomq:9.0.0")
    findings = examine(server, ["orders"], settle=0).findings
    assert [(f.kind, f.subject) for f in findings] == [("reserved_key", b"{emq}:notes")]
    assert [m.outcome for m in mend(server, findings)] == ["left"]
    assert server.read("GET", "{emq}:version") == b"echomq:9.0.0"


def test_nothing_but_bounded_commands_is_sent(server: Server, valkey: Valkey) -> None:
    build(server, size=500)
    with valkey.client() as admin:
        admin.config_resetstat()
        examine(server, ["orders"], settle=0)
        sent = {name.removeprefix("cmdstat_") for name in admin.info("commandstats")}
    assert not sent & {"keys", "hgetall", "smembers", "flushall", "eval", "evalsha", "zadd", "hset", "del", "unlink"}


def test_more_in_flight_than_one_script_may_count(server: Server) -> None:
    world = build(server)
    server.write("LREM", world.k.ring, 0, world.free[0])
    diagnosis = examine(server, ["orders"], settle=0, max_flights=3)
    assert diagnosis.healthy
    assert "lanes were not judged: more than 3 jobs in flight" in diagnosis.notes[0]


def test_a_job_that_moves_between_the_looks_is_no_finding(server: Server) -> None:
    """What somebody does in two steps: a deduplication key, then its job."""
    q = Queue(server, "orders")
    server.write("SET", q.keys.dedup("x"), GONE)
    timer = threading.Timer(0.05, enqueue.enqueue, (q, GONE, b"x"))
    timer.start()
    diagnosis = examine(server, ["orders"], settle=1)
    timer.join()
    assert diagnosis.healthy


def test_every_kind_is_explained() -> None:
    for kind in KINDS.values():
        assert kind.meaning
        assert kind.mending or not kind.safe
