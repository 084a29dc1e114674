"""How a server or a disk may lose what it took, told before it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_ops.passes.observe.durability import network_disk, risks_of, server_risks
from emq_ops.protocol.connection.options import ConnectionOptions
from emq_ops.protocol.server import Server, connect
from tests.support.cli import emq
from tests.support.cluster import until
from tests.support.ports import free_ports
from tests.support.valkey import Valkey

MOUNTS = [
    "/dev/vda1 / ext4 rw 0 0",
    "nas:/export /srv/nas nfs4 rw,vers=4.2 0 0",
    "tmpfs /srv/nas/scratch tmpfs rw 0 0",
    "//win/share /mnt/my\\040share cifs rw 0 0",
]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/state.db", None),
        ("/srv/nas/emq/state.db", "nfs4"),
        ("/srv/nas/scratch/state.db", None),
        ("/srv/nas2/state.db", None),
        ("/mnt/my share/state.db", "cifs"),
    ],
)
def test_a_network_file_system_is_found(path: str, kind: str | None) -> None:
    assert network_disk(Path(path), MOUNTS) == kind


def test_this_host_has_none_below_its_temporary_folder(tmp_path: Path) -> None:
    assert network_disk(tmp_path) is None


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, valkey: Valkey) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(
        f'server: {{url: "{valkey.url}"}}\nstate: {{url: "sqlite:///state.db"}}\n'
        "queues: {orders: {stalled: {}}}\n"
    )
    return tmp_path


def test_plan_and_doctor_say_what_the_server_may_lose(place: Path, server: Server) -> None:
    try:
        server.write("CONFIG", "SET", "maxmemory", "4gb")
        server.write("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        for words, code in ((("plan",), 2), (("doctor",), 0)):
            ran = emq(*words)
            assert ran.code == code
            assert "evicts keys" in ran.err
            assert "appendonly no" in ran.err
    finally:
        server.write("CONFIG", "SET", "maxmemory-policy", "noeviction")
        server.write("CONFIG", "SET", "maxmemory", "0")
    assert "evicts" not in emq("plan").err


def test_a_durable_server_is_nothing_to_tell() -> None:
    with Valkey(appendonly="yes") as durable, connect(durable.url, ConnectionOptions()) as server:
        assert server_risks(server) == []


def test_a_primary_whose_restart_empties_its_replicas(free: int) -> None:
    with Valkey(port=free) as primary, Valkey(replicaof=f"127.0.0.1 {free}") as _, connect(primary.url) as server:
        until("it is told", lambda: any("empties them" in line for line in server_risks(server)))


@pytest.fixture
def free() -> int:
    [port] = free_ports(1)
    return port


def test_a_replica_that_is_not_in_step() -> None:
    facts = {"slave0": "ip=10.0.0.2,port=6379,state=wait_bgsave,offset=0,lag=0", "aof_enabled": "1"}
    [line] = risks_of(facts)
    assert "10.0.0.2:6379 is not in step (wait_bgsave)" in line
