"""The doctor: each kind of damage is found, nothing else is; mended, and nothing else touched."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from emq_ops.audit.doctor import KINDS, examine, kinds_named, mend
from emq_ops.protocol.conformance.keyspace import load_keyspace
from emq_ops.protocol.conformance.replay import read_vectors
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import claims, control, enqueue
from tests.audit.damage import DAMAGES, GONE, Damage
from tests.audit.healthy import LONG_MS, Healthy, Traffic, build
from tests.support.invariants import violations
from tests.support.keyspace import dump, load_live, recorded
from tests.support.passing import until
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


SIZE, LANES = 10_000, 30


def served(damage: Damage) -> bool:
    """Whether the damage stands while all of the traffic goes on. The rest needs a lane that may be served, which a
    consumer of lanes would empty, or is trimmed by the next wake-up."""
    needs_a_free_lane = ("off_ring", "ring_twice", "odd_lane_name", "on_ring", "long_wake")
    return damage.kind not in needs_a_free_lane and "gactive" not in damage.name


def found_mended_and_nothing_else(
    server: Server, valkey: Valkey, world: Healthy, damages: list[Damage], left: set[tuple[str, str]], *, serve: bool
) -> set[tuple[str, str]]:
    """Plants `damages` under traffic, looks, mends; answers what is left then, with what was `left` before."""
    with Traffic(valkey.url, serves_lanes=serve) as traffic:
        until(lambda: traffic.settled > 4, "traffic")  # the traffic's own lanes stand
        planted = {(d.kind, d.plant(server, world)): d for d in damages}
        victims = {subject for _, subject in {*planted, *left}}
        before = static_part(server, world, victims)
        start = traffic.settled
        diagnosis = examine(server, ["orders"])
        assert {(f.kind, f.subject.decode()) for f in diagnosis.findings} == {*planted, *left}
        stops = {"bad_count"} & {damage.kind for damage in damages}
        assert stops or traffic.settled > start
        fresh = [f for f in diagnosis.findings if (f.kind, f.subject.decode()) in planted]
        for outcome in mend(server, fresh):
            damage = planted[outcome.finding.kind, outcome.finding.subject.decode()]
            # A wake-up of a mended lane trims the list too.
            mended = ("mended", "gone") if damage.kind == "long_wake" else ("mended",)
            assert outcome.outcome in (mended if damage.mended else ("left",)), (damage.name, outcome.why)
        still = {key for key, damage in planted.items() if not damage.mended} | left
        assert {(f.kind, f.subject.decode()) for f in examine(server, ["orders"]).findings} == still
        assert static_part(server, world, victims) == before
        for (_, subject), damage in planted.items():
            assert damage.after is None or damage.after(server, world, subject), damage.name
    return still


def set_lanes(world: Healthy, *, served: bool) -> None:
    """Lanes that are served give their jobs to the traffic."""
    for group in world.free:
        (control.resume_lane if served else control.pause_lane)(world.q, group)


def test_all_damage_at_once_among_ten_thousand_under_traffic(server: Server, valkey: Valkey) -> None:
    world = build(server, size=SIZE, lanes=LANES)
    assert sum(map(len, (world.jobs, world.lane_active))) > 0.9 * SIZE
    set_lanes(world, served=False)
    first, second = [d for d in DAMAGES if served(d)], [d for d in DAMAGES if not served(d)]
    left = found_mended_and_nothing_else(server, valkey, world, first, set(), serve=True)
    set_lanes(world, served=True)
    found_mended_and_nothing_else(server, valkey, world, second, left, serve=False)


@pytest.fixture(scope="module")
def ten_thousand() -> Iterator[tuple[Valkey, Healthy, list[tuple[str, int, bytes]]]]:
    """A healthy queue, and each of its keys with its life (ms, 0 for ever) and as the server dumps it."""
    with Valkey() as valkey, connect(valkey.url) as server:
        world = build(server, size=SIZE, lanes=LANES)
        names = [key.decode() for key in set(server.scan())]
        lives = [max(0, ms) for ms in server.read_many([("PTTL", key) for key in names])]
        bodies = server.read_many([("DUMP", key) for key in names])
        yield valkey, world, list(zip(names, lives, bodies, strict=True))


@pytest.mark.soak
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.name)
def test_each_damage_among_ten_thousand_under_traffic(
    ten_thousand: tuple[Valkey, Healthy, list[tuple[str, int, bytes]]], damage: Damage
) -> None:
    valkey, built, keyspace = ten_thousand
    with connect(valkey.url) as server, valkey.client() as admin:
        admin.flushall()
        pipe = admin.pipeline(transaction=False)
        for key, life, body in keyspace:
            pipe.restore(key, life, body)
        pipe.execute()
        world = replace(built, q=Queue(server, built.q.name))
        set_lanes(world, served=not served(damage))
        found_mended_and_nothing_else(server, valkey, world, [damage], set(), serve=served(damage))


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
        if damage.kind in ("bad_limit", "bad_ceiling"):
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
