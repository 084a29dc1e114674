"""The driver where servers differ: on a Cluster, and under the least-rights users."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_archive.model import Policy, Writer
from emq_archive.write.dead import DeadArchive
from emq_ops.protocol.errors import ServerError
from emq_ops.protocol.server import Server
from tests.archive.folding import STATE, Host
from tests.archive.test_dead import make_dead
from tests.support.roles import connect_as, install
from tests.support.valkey import Valkey


def test_on_a_cluster_each_queue_on_its_own_slot(on_cluster: Server, tmp_path: Path) -> None:
    for queue in ("a", "mail", "orders"):
        root = tmp_path / queue
        root.mkdir()
        host = Host.in_folder(on_cluster, root, queue_name=queue)
        host.add(*(f"{i}-0" for i in range(1, 301)))
        report = host.anew(keep=10).cycle(force=True)
        assert (report.folded, report.trimmed, report.refused) == (300, 290, [])
        assert host.archived() == host.sent
        job = make_dead(host.queue)
        archive = DeadArchive(host.queue, host.local, host.remote, Policy(), Writer(STATE))
        assert set(archive.archive([job], {}, now_ms=1).proven) == {job}
        host.close()


@pytest.mark.parametrize("role", ["operator", "daemon"])
def test_whole_under_the_roles_that_run_passes(role: str, server: Server, valkey: Valkey, tmp_path: Path) -> None:
    install(valkey)
    with connect_as(valkey, role) as caller:
        host = Host.in_folder(caller, tmp_path)
        host.queue.server = server
        host.put("1733000000000-0", "id", "EVT0STBBIRAKHo")
        host.add(*(f"{1733000000000 + i}-0" for i in range(1, 50)))
        host.queue.server = caller
        report = host.anew(keep=10).cycle(force=True)
        assert (report.trimmed, report.notes, report.watermark) == (40, [], "EVT0STBBIRAKHo")
        assert host.archived() == host.sent
        host.close()


def test_a_reader_trims_nothing_and_its_archive_is_whole(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    install(valkey)
    host = Host.in_folder(server, tmp_path)
    host.add(*(f"{i}-0" for i in range(1, 50)))
    with connect_as(valkey, "reader") as reader:
        host.queue.server = reader
        with pytest.raises(ServerError) as refused:
            host.anew(keep=10).cycle(force=True)
    assert refused.value.code == "NOPERM"
    host.queue.server = server
    assert len(host.left()) == 49
    assert host.archived() == host.sent
    host.close()
