"""A right that is taken from a user while it works ends no script after its first write."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.policy.models import DeadPolicy, StalledPolicy
from emq_ops.protocol.conformance.keyspace import load_keyspace
from emq_ops.protocol.conformance.replay import CALLS, Vector, read_vectors
from emq_ops.protocol.conformance.values import instant
from emq_ops.protocol.errors import EmqError, ServerError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import load, names
from emq_ops.protocol.server import Server
from tests.protocol.test_operations import known_operations
from tests.support.faults import READS
from tests.support.keyspace import dump, recorded
from tests.support.passing import dead_of, kill_row, leading, stall, sweep, trim
from tests.support.roles import connect_as, install
from tests.support.valkey import Valkey

READING = READS | {"INFO", "SMISMEMBER", "ZMSCORE", "PEXPIRETIME"}
VECTORS = [*read_vectors(recorded("transitions.json")), *known_operations()]


def written(script: str) -> list[str]:
    """The commands of a script that change something."""
    found = {name.decode() for name in re.findall(rb"redis\.p?call\('([A-Z]+)'", load(script).source)}
    return sorted(found - READING)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/s.db") as opened:
        yield opened


def swept(server: Server, ledger: Ledger, fence: Fence) -> None:
    sweep(server, "mail", StalledPolicy(max_stalled=1), ledger, fence)


def trimmed(server: Server, ledger: Ledger, fence: Fence) -> None:
    trim(server, "mail", DeadPolicy(keep=1, archive=False), ledger, fence)


@pytest.mark.parametrize(("script", "do"), [("sweep_pass", swept), ("dead_trim", trimmed)])
def test_a_right_that_is_taken_away_changes_nothing(
    valkey: Valkey, server: Server, ledger: Ledger, script: str, do: Callable[[Server, Ledger, Fence], None]
) -> None:
    install(valkey)
    q = Queue(server, "mail")
    kill_row(q, 4)
    stall(q, 3)
    commands = written(script)
    assert len(commands) >= 3
    with connect_as(valkey, "daemon") as ours, leading(ours, ledger, "mail") as fence, valkey.client() as admin:
        before = dump(server)
        for command in commands:
            admin.execute_command("ACL", "SETUSER", "emq-ops-daemon", f"-{command}")
            with pytest.raises(ServerError) as told:
                do(ours, ledger, fence)
            assert told.value.code == "NOPERM", command
            assert command.lower() in str(told.value).lower()
            assert dump(server) == before, command
            admin.execute_command("ACL", "SETUSER", "emq-ops-daemon", f"+{command}")
        do(ours, ledger, fence)
    assert len(dead_of(q)) in (1, 7)


@pytest.mark.parametrize("script", [name for name in names() if len(written(name)) > 1])
def test_a_script_asks_for_every_right_that_it_needs(script: str) -> None:
    source = load(script).source
    asked = re.findall(rb"expect_rights\(([^)]*)\)|acl_check_cmd\('([A-Z]+)'", source)
    known = {word for several, one in asked for word in [one, *re.findall(rb"'([A-Z]+)'", several)] if word}
    assert {name.encode() for name in written(script)} <= known | READY_MADE.get(script, set())


READY_MADE = {"set_field": {b"HDEL", b"HSET"}}
"""One write, whichever it is."""
WRITES = sorted({command for name in names() for command in written(name)})


def attempt(server: Server, caller: Server, vector: Vector) -> str | None:
    """Makes the recorded call on the recorded keyspace; the class of its refusal. A refusal has changed nothing."""
    for key in set(server.scan()):
        server.write("UNLINK", key)
    q = Queue(caller, vector.queue)
    load_keyspace(server, vector.given, server.now_ms(q.name))
    now = server.now_ms(q.name)
    before = dump(server)
    server.write("CONFIG", "RESETSTAT")
    code = None
    try:
        CALLS[vector.op](q, {name: instant(value, now) for name, value in vector.args.items()})
    except EmqError as refusal:
        code = getattr(refusal, "code", type(refusal).__name__)
    if code is not None and dump(server) != before:
        code += ", and half of it was done"
    return code


def sent(server: Server) -> list[str]:
    """The commands that changed something since `attempt` began its call."""
    stats = server.read("INFO", "commandstats").decode()
    return sorted({name.upper() for name in re.findall(r"^cmdstat_(\w+):", stats, re.MULTILINE)} & set(WRITES))


READS = {
    *("job_state", "counts", "lane_depth", "lane_depths", "repeat_due", "stream_read", "stream_read_window"),
    *("stream_read_since", "get_archived", "rate_limit_ttl", "rate_limit", "is_maxed", "dedup_job", "metrics"),
    *("read_job", "job_stalled", "read_logs", "browse", "pending_size"),
    *("children_values", "ignored_failures", "dependencies"),
    *("enqueue_many", "add_flows", "locks"),  # several calls
    *("stream_append", "stream_append_id", "stream_append_batch"),  # an operator may not append
}


@pytest.mark.parametrize("op", sorted({vector.op for vector in VECTORS} - READS))
def test_recorded_transitions_without_one_right_each(valkey: Valkey, server: Server, op: str) -> None:
    install(valkey)
    tried = Counter[str]()
    recordings = [vector for vector in VECTORS if vector.op == op]
    with connect_as(valkey, "operator") as ours, valkey.client() as admin:
        for vector in recordings[:: max(1, len(recordings) // 5)]:
            if attempt(server, ours, vector) is not None:
                continue
            commands = sent(server)
            # The only write may ask for nothing: the server itself refuses it, and nothing came before.
            refused = ("NOPERM", "ERR") if len(commands) == 1 else ("NOPERM",)
            for command in commands:
                admin.execute_command("ACL", "SETUSER", "emq-ops-operator", f"-{command}")
                assert attempt(server, ours, vector) in refused, f"{vector.name} without {command}"
                admin.execute_command("ACL", "SETUSER", "emq-ops-operator", f"+{command}")
                tried[command] += 1
    assert tried
