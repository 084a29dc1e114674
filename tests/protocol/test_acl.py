"""Least rights: every script is whole under each role that may call it; a missing right fails before any write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from emq_ops.cli.main import main
from emq_ops.protocol import acl, ids, scripts
from emq_ops.protocol.conformance.replay import read_vectors, replay
from emq_ops.protocol.errors import ServerError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, enqueue, jobs, reads, recover, repeat
from emq_ops.worker import Backoff, Consumer, ConsumerSettings, Job
from tests.support.consuming import eventually, records
from tests.support.keyspace import dump, load_live, recorded
from tests.support.roles import FOLDER, ROLES, connect_as, connecting, install, install_on_rules
from tests.support.valkey import Valkey

VECTORS = read_vectors(recorded("transitions.json"))
READ_ONLY = {"job_state", "counts"}
PASSES = r"outbox_|flow_hear|lease_|sweep_pass|trim|stream_|dead_|look|census|exempt|doctor_mend|act_"
CHANNEL, KEY, STREAM = "emq:{q}:events", "emq:{q}:job:x", "emq:{q}:stream:x"


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
    found = [pair for pair in found if pair[0] != "HPEXPIRE"]  # asked for by lib/lock, which does without
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
                target = CHANNEL if command[0] == "PUBLISH" else STREAM if command[0].startswith("X") else KEY
                words = [*command, target] if command[0] not in ("INFO", "TIME") else [*command]
                words += [KEY if command[0] in ("LMOVE", "RENAME") else "x"] * max(arity - len(words), 0)
                answer = admin.execute_command("ACL", "DRYRUN", f"emq-ops-{role}", *words)
                assert answer in (b"OK", "OK"), (
                    f"{role} may not {' '.join(words)}, which lua/{name}.lua sends: {answer!r}"
                )


@pytest.mark.parametrize("role", acl.ROLES)
def test_the_files_are_what_the_command_prints(role: acl.Role, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acl", role]) == 0
    assert capsys.readouterr().out == (FOLDER / f"{role}.acl").read_text()


def denied(server: Server, *words: str) -> bool:
    """Whether the server refuses the right to a command."""
    try:
        server.write(*words)
    except ServerError as fault:
        return fault.code == "NOPERM"
    return False


@pytest.mark.parametrize("role", ROLES)
def test_no_role_reads_the_servers_settings_or_writes_the_fence(role: str, roles: Callable[[str], Server]) -> None:
    caller = roles(role)
    assert denied(caller, "CONFIG", "GET", "*")
    assert denied(caller, "CONFIG", "GET", "requirepass")
    assert denied(caller, "SET", "{emq}:version", "echomq:9.0.0")
    assert denied(caller, "ACL", "LIST")


AWAY = [
    ["XTRIM", "emq:{q}:stream:completions", "MAXLEN", "0"],
    ["XDEL", "emq:{q}:stream:completions", "1-1"],
    ["DEL", "emq:{q}:stream:completions"],
    ["UNLINK", "emq:{q}:stream:completions"],
    ["SET", "emq:{q}:stream:completions", "x"],
    ["RENAME", "emq:{q}:stream:completions", "emq:{q}:job:x"],
    ["EVAL", "return redis.call('UNLINK', KEYS[1])", "1", "emq:{q}:stream:completions"],
    ["EVAL", "return redis.call('DEL', 'emq:{q}:flow:outbox')", "1", "emq:{q}:meta"],
    ["EVAL", "return redis.call('SET', KEYS[1], 'x')", "1", "emq-ops:{q}:lease"],
    ["HSET", "emq-ops:{q}:lease", "token", "9"],
]


@pytest.mark.parametrize("words", AWAY, ids=[" ".join(w[:2]) for w in AWAY])
def test_a_worker_takes_no_stream_and_no_key_of_ours_away(
    words: list[str], server: Server, roles: Callable[[str], Server]
) -> None:
    server.write("XADD", "emq:{q}:stream:completions", "1-1", "a", "b")
    server.write("RPUSH", "emq:{q}:flow:outbox", "signal")
    before = dump(server)
    caller = roles("worker")
    with pytest.raises(ServerError, match=r"NOPERM|permissions"):
        caller.write(*words)
    assert dump(server) == before


@pytest.mark.parametrize("queue", ["orders", "a b", "x*[1]", "ünï(1)"])
def test_a_worker_of_one_queue_works_it_and_touches_no_other(queue: str, valkey: Valkey, server: Server) -> None:
    install_on_rules(valkey, "emq-ops-worker", acl.rules("worker", [queue]))
    q = Queue(server, queue)
    for payload in (b"fine", b"fails", b"again"):
        enqueue.enqueue(q, ids.mint(), payload)
    enqueue.enqueue(q, ids.mint(), b"fine", group=ids.mint("GRP"))
    server.write("HSET", "emq:{other}:meta", "paused", "1")

    def handler(job: Job) -> bytes:
        job.log("begun")
        job.progress("50")
        job.extend(30_000)
        if job.payload == b"fails" or (job.payload == b"again" and job.attempts == 1):
            raise ValueError
        return b"done"

    with connect_as(valkey, "worker") as caller:
        consumer = Consumer(
            Queue(caller, queue), handler, ConsumerSettings(max_attempts=2, backoff=Backoff(base=0, longest=0), beat=20)
        )
        with consumer:
            eventually(lambda: reads.counts(q).completed == 3 and reads.counts(q).dead == 1, "all is settled")
        assert len(records(q)) == 4
        assert denied(caller, "HDEL", "emq:{other}:meta", "paused")
        assert denied(caller, "XADD", "emq:{other}:stream:completions", "*", "a", "b")


@pytest.mark.parametrize("role", acl.ROLES)
def test_rules_of_two_queues_and_a_user_of_ones_own(role: acl.Role, valkey: Valkey, server: Server) -> None:
    text = acl.line(role, ["one", "two"], user="shop")
    assert text.split()[:3] == ["user", "shop", "on"]
    install_on_rules(valkey, "shop", text.split()[3:])
    with valkey.client() as admin:
        for queue, may in (("one", True), ("two", True), ("three", False), ("onemore", False)):
            answer = admin.execute_command("ACL", "DRYRUN", "shop", "ZCARD", keys_of(queue).pending)
            assert (answer in (b"OK", "OK")) is may, queue


def test_a_user_needs_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acl", "worker", "--user", "a b"]) == 4
    assert main(["acl", "worker", "--queue", "a}b"]) == 4
