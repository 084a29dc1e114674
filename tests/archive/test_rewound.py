"""A stream that goes back in time inside one life of its server, by what operators really do to servers and keys.

Counters do not show it: more comes than went. No record leaves the stream that the archive does not hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from emq_archive.model import Writer
from emq_archive.upkeep.verify import verify
from emq_archive.write.facts import StreamFacts
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.server import connect
from tests.archive.folding import STATE, Host
from tests.support.oracle import Seen
from tests.support.ports import free_ports
from tests.support.valkey import Valkey

Trick = Callable[[Valkey, Host, bytes], None]


@pytest.fixture
def valkey_alone() -> Iterator[Valkey]:
    with Valkey(enable_debug_command="local") as server:
        yield server


@pytest.fixture
def host(valkey_alone: Valkey, tmp_path: Path) -> Iterator[Host]:
    with connect(valkey_alone.url) as server:
        made = Host.in_folder(server, tmp_path)
        yield made
        made.close()


def promoted(valkey: Valkey, host: Host, dump: bytes) -> None:
    """The server becomes a replica of one that holds less, and is promoted again: its run id stays."""
    port = free_ports(1)[0]
    with Valkey(port=port) as older, older.client() as other, valkey.client() as client:
        other.restore(host.key, 0, dump)
        client.execute_command("REPLICAOF", "127.0.0.1", port)
        until = time.monotonic() + 60
        while client.info("replication")["master_link_status"] != "up":
            assert time.monotonic() < until, "the full synchronisation did not end"
            time.sleep(0.05)
        client.execute_command("REPLICAOF", "NO", "ONE")


def restored(valkey: Valkey, host: Host, dump: bytes) -> None:
    """Somebody puts an old dump of the key back."""
    with valkey.client() as client:
        client.restore(host.key, 0, dump, replace=True)


def set_back(valkey: Valkey, host: Host, _dump: bytes) -> None:
    """The emptied stream's counter is set back by hand."""
    with valkey.client() as client:
        client.execute_command("XTRIM", host.key, "MAXLEN", "=", 0)
        client.execute_command("XSETID", host.key, "500-0")


@pytest.mark.parametrize("trick", [promoted, restored, set_back])
def test_a_stream_that_went_back_inside_one_run_id_loses_nothing(
    valkey_alone: Valkey, host: Host, trick: Trick
) -> None:
    host.add(*(f"{i}0-0" for i in range(1, 51)))
    with valkey_alone.client() as client:
        dump = client.dump(host.key)
    assert isinstance(dump, bytes)
    host.add(*(f"{i}0-0" for i in range(51, 101)))
    host.anew(keep=130).cycle(force=True)
    before = valkey_alone.client().info("server")["run_id"]
    trick(valkey_alone, host, dump)
    assert valkey_alone.client().info("server")["run_id"] == before
    host.add(*(f"{i}-7" for i in range(501, 561)), came="below what was read")
    whole(host)
    host.add(*(f"{i}-0" for i in range(2000, 2200)), came="above it")
    for keep in (130, 130, 100, 0, 0, 0):
        host.driver.policy = replace(host.driver.policy, keep=keep)
        host.driver.cycle(force=True)
        whole(host)
    assert host.left() == []
    assert host.archived() == sorted(set(host.sent))
    assert verify(host.local, host.remote, host.driver.source.ref).faults == []


def whole(host: Host) -> None:
    """Every record that was ever sent is in the archive or still in the stream."""
    left = {Seen.of(*entry) for entry in host.server.read("XRANGE", host.key, "-", "+")}
    assert set(host.sent) - left - set(host.archived()) == set()


def test_a_lease_that_changed_hands_makes_it_read_again(host: Host) -> None:
    """What another leader did meanwhile is not known here."""
    host.add(*(f"{i}-0" for i in range(1, 11)))
    driver = host.anew()
    reads = []
    for token, known in ((1, 0), (1, 0), (2, 10), (2, 0)):
        driver.lead(Fence(host.queue.keys, STATE, token, "0" * 40), Writer(STATE, token))
        reads.append((driver.cycle().known, known))
    assert all(read == known for read, known in reads), reads


def test_a_replication_of_another_life_makes_it_read_again(valkey_alone: Valkey, host: Host) -> None:
    host.add(*(f"{i}-0" for i in range(1, 11)))
    driver = host.anew()
    assert [driver.cycle().known, driver.cycle().known] == [0, 0]
    valkey_alone.client().execute_command("DEBUG", "CHANGE-REPL-ID")
    assert [driver.cycle().known, driver.cycle().known] == [10, 0]
    before = StreamFacts(1, "run", "replication", offset=7)
    assert replace(before, offset=8).same_life(before)
    assert not replace(before, offset=6).same_life(before)
