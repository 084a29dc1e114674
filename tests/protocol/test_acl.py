"""Least rights: every script is whole under each role that may call it; a missing right fails before any write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from emq_ops.protocol import ids, scripts
from emq_ops.protocol.conformance.replay import read_vectors, replay
from emq_ops.protocol.errors import ServerError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, enqueue, jobs, reads, recover, repeat
from tests.support.keyspace import dump, load_live, recorded
from tests.support.roles import ROLES, connecting, install
from tests.support.valkey import Valkey

VECTORS = read_vectors(recorded("transitions.json"))
READ_ONLY = {"job_state", "counts"}
PASSES = r"lease_|sweep_pass|trim|stream_|dead_|look|census|exempt|doctor_mend|act_"
CHANNEL, KEY = "emq:{q}:events", "emq:{q}:x"


@pytest.fixture
def roles(valkey: Valkey, server: Server) -> Iterator[Callable[[str], Server]]:
    with connecting(valkey) as open_as:
        yield open_as


@pytest.mark.parametrize("role", ["worker", "operator", "daemon"])
def test_recorded_transitions_are_whole_under_each_role(
    role: str, server: Server, roles: Callable[[str], Server]
) -> None:
    caller = roles(role)
    disagreeing = {}
    for vector in VECTORS[::3]:
        for key in set(server.scan()):
            server.write("UNLINK", key)
        verdict = replay(server, vector, caller=caller)
        if not verdict.agrees:
            disagreeing[vector.name] = verdict.lines
    assert disagreeing == {}


def test_a_reader_sees_everything(server: Server, roles: Callable[[str], Server]) -> None:
    load_live(server)
    reader = roles("reader")
    for name in server.queues():
        ours, theirs = Queue(reader, name), Queue(server, name)
        assert reads.counts(ours) == reads.counts(theirs)
        assert reads.lanes(ours) == reads.lanes(theirs)
        assert repeat.repeatables(ours) == repeat.repeatables(theirs)
        for job in reads.browse(ours, "dead", limit=5):
            assert reads.job_state(ours, job) is reads.JobState.DEAD
    assert reader.queues() == server.queues()
    assert dump(reader) == dump(server)


@pytest.mark.parametrize(
    "call",
    [
        lambda q, _: enqueue.enqueue(q, ids.mint(), b"x"),
        lambda q, _: claims.claim(q, 1000),
        lambda q, _: recover.sweep(q),
        lambda q, j: jobs.requeue(q, j),
        lambda q, j: jobs.update_progress(q, j, b"5"),
        lambda q, _: control.pause_queue(q),
        lambda q, _: q.server.write("SET", q.keys.meta, "x"),
        lambda q, _: q.server.read("KEYS", "*"),
        lambda q, _: q.server.write("FLUSHALL"),
    ],
)
def test_a_reader_changes_nothing(
    call: Callable[[Queue, str], Any], server: Server, roles: Callable[[str], Server]
) -> None:
    load_live(server)
    job = reads.browse(Queue(server, "orders"), "dead", limit=1)[0]
    before = dump(server)
    with pytest.raises(ServerError) as refused:
        call(Queue(roles("reader"), "orders"), job)
    assert refused.value.code == "NOPERM"
    assert dump(server) == before


def test_a_missing_channel_right_fails_before_the_write(
    server: Server, valkey: Valkey, roles: Callable[[str], Server]
) -> None:
    job = ids.mint()
    enqueue.enqueue(Queue(server, "q"), job, b"x")
    worker = roles("worker")
    with valkey.client() as admin:
        admin.execute_command("ACL", "SETUSER", "emq-ops-worker", "resetchannels")
    before = dump(server)
    with pytest.raises(ServerError) as refused:
        jobs.update_progress(Queue(worker, "q"), job, b"50")
    assert refused.value.code == "NOPERM"
    assert dump(server) == before


def _commands(name: str) -> set[tuple[str, ...]]:
    """The commands that a script may send, by its source: (``HSET``,), (``XINFO``, ``STREAM``) ..."""
    source = scripts.load(name).source.decode()
    found = re.findall(r"redis\.p?call\(\s*'([A-Z]+)'(?:,\s*'([A-Z]{4,})')?", source)
    found += re.findall(r"\{\s*'(XADD|XTRIM|ZADD|HSET)'()", source)
    return {(verb, sub) if verb == "XINFO" else (verb,) for verb, sub in found}


def _roles_of(name: str) -> tuple[str, ...]:
    """Which roles may call a script: all where it only reads, the daemon and the operator where a pass calls it."""
    writes = {
        "HSET",
        "HDEL",
        "HINCRBY",
        "ZADD",
        "ZREM",
        "SET",
        "UNLINK",
        "XADD",
        "XTRIM",
        "XDEL",
        "LPUSH",
        "RPUSH",
        "LREM",
    }
    if not any(command[0] in writes for command in _commands(name)):
        return ROLES
    return ("operator", "daemon") if re.match(PASSES, name) else ("worker", "operator", "daemon")


@pytest.mark.parametrize("name", scripts.names())
def test_no_script_can_fail_half_way_for_a_right(name: str, valkey: Valkey, server: Server) -> None:
    install(valkey)
    with valkey.client() as admin:
        for role in _roles_of(name):
            for command in sorted(_commands(name)):
                arity = abs(int(server.read("COMMAND", "INFO", command[0])[0][1]))
                target = CHANNEL if command[0] == "PUBLISH" else KEY
                words = [*command, target] if command[0] not in ("INFO", "TIME") else [*command]
                words += [KEY if command[0] in ("LMOVE", "RENAME") else "x"] * max(arity - len(words), 0)
                answer = admin.execute_command("ACL", "DRYRUN", f"emq-ops-{role}", *words)
                assert answer in (b"OK", "OK"), (
                    f"{role} may not {' '.join(words)}, which lua/{name}.lua sends: {answer!r}"
                )
