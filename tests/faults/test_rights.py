"""A right that is taken from the daemon's user while it works ends no script after its first write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.policy import DeadPolicy, StalledPolicy
from emq_ops.passes.sweep import sweep
from emq_ops.passes.trim import trim
from emq_ops.protocol.errors import ServerError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server
from tests.support.faults import READS
from tests.support.keyspace import dump
from tests.support.passing import dead_of, kill_row, leading, stall
from tests.support.roles import connect_as, install
from tests.support.valkey import Valkey

READING = READS | {"INFO", "SMISMEMBER", "ZMSCORE", "PEXPIRETIME"}


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
