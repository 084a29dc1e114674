"""Doctor, audits and acts on a Cluster, under least-rights users, at the memory limit, and with PostgreSQL beside."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from emq_ops.audit.dead import AuditOptions, audit_dead
from emq_ops.audit.doctor import examine, mend
from emq_ops.audit.life import life_of
from emq_ops.audit.restarts import audit_restarts
from emq_ops.audit.whatif import what_if
from emq_ops.ledger import acts
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.acts.act import act
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.passes.acts.targets import choose
from emq_ops.passes.acts.undo import rehydrate_jobs, undo_run
from emq_ops.protocol.errors import ServerError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from tests.audit.damage import GONE
from tests.audit.working import failed, stalled, swept
from tests.support.keyspace import dump, load_live
from tests.support.postgres import Postgres
from tests.support.roles import connecting
from tests.support.valkey import Valkey


def plant(server: Server) -> None:
    for name in ("orders", "mail"):
        keys = Queue(server, name).keys
        server.write("ZADD", keys.dead, 0, GONE)
        server.write("SET", keys.dedup("x"), GONE)


def round_trip(server: Server, ledger: Ledger) -> None:
    """Everything that Part F does, once; the keyspace ends as it began."""
    before = dump(server)
    plant(server)
    diagnosis = examine(server, server.queues(), settle=0)
    assert len(diagnosis.findings) == 4
    assert {m.outcome for m in mend(server, diagnosis.findings)} == {"mended"}
    assert dump(server) == before
    audit = audit_dead(server, server.queues(), DeadSelection(), ledger)
    assert audit.dead == 86
    chosen = choose(server, "orders", DeadSelection(errors=("HTTP 503*",)), ledger)
    removal = act(server, acts.REMOVE, chosen, ledger, ActOptions(rate=100_000))
    assert removal.done == 9
    assert undo_run(server, removal.run or "", ledger, options=ActOptions(rate=100_000)).done == 9
    assert dump(server) == before
    removal = act(server, acts.REMOVE, chosen, ledger, ActOptions(rate=100_000))
    assert rehydrate_jobs(server, "orders", removal.done_jobs, ledger).done == 9
    assert dump(server) == before
    assert life_of(removal.done_jobs[0], server=server, queues=server.queues(), ledger=ledger).live


def test_on_a_cluster(on_cluster: Server, ledger: Ledger) -> None:
    load_live(on_cluster)
    assert examine(on_cluster, on_cluster.queues(), settle=0).healthy
    round_trip(on_cluster, ledger)


@pytest.fixture
def roles(valkey: Valkey, server: Server) -> Iterator[Callable[[str], Server]]:
    load_live(server)
    with connecting(valkey) as open_as:
        yield open_as


def test_a_reader_looks_and_changes_nothing(roles: Callable[[str], Server], server: Server, ledger: Ledger) -> None:
    reader = roles("reader")
    plant(server)
    before = dump(server)
    findings = examine(reader, reader.queues(), settle=0).findings
    assert len(findings) == 4
    assert {m.outcome for m in mend(reader, findings)} == {"left"}
    assert audit_dead(reader, reader.queues(), DeadSelection(payload=b"order"), ledger).dead > 0
    chosen = choose(reader, "orders", DeadSelection())
    for kind in (acts.REMOVE, acts.REQUEUE):
        with pytest.raises(ServerError, match="NOPERM"):
            act(reader, kind, chosen, ledger)
    assert dump(server) == before


@pytest.mark.parametrize("role", ["operator", "daemon"])
def test_whole_under_a_role(role: str, roles: Callable[[str], Server], ledger: Ledger) -> None:
    round_trip(roles(role), ledger)


def test_at_the_memory_limit(ledger: Ledger) -> None:
    """What frees memory works where nothing else can be written; bringing back waits for room."""
    with Valkey() as full, connect(full.url) as server, full.client() as admin:
        load_live(server)
        before = dump(server)
        plant(server)
        admin.config_set("maxmemory", admin.info("memory")["used_memory"] // 2)
        findings = examine(server, server.queues(), settle=0).findings
        assert {m.outcome for m in mend(server, findings)} == {"mended"}
        removal = act(server, acts.REMOVE, choose(server, "mail", DeadSelection()), ledger, ActOptions(rate=100_000))
        assert removal.done == 20
        with pytest.raises(ServerError, match="OOM"):
            undo_run(server, removal.run or "", ledger)
        admin.config_set("maxmemory", 0)
        assert undo_run(server, removal.run or "", ledger).done == 20
        assert dump(server) == before


def test_with_postgres(server: Server, postgres: Postgres) -> None:
    with open_ledger(postgres.fresh()) as ledger:
        load_live(server)
        round_trip(server, ledger)
        q = Queue(server, "billing")
        failed(q, b"boom")
        gone = stalled(q, 12)
        swept(server, ledger, "billing", max_stalled=1)
        audit = audit_dead(server, ["billing"], DeadSelection(), ledger, AuditOptions(history=True))
        assert (audit.dead, audit.unrecorded, [b.leases for b in audit.bursts]) == (13, 0, [12])
        assert what_if(ledger, 2, ["billing"]).would_die == 0
        assert what_if(ledger, 1, ["billing"]).died == 12
        assert audit_restarts(ledger).outcomes == []
        life = life_of(gone[0], server=server, queues=["billing"], ledger=ledger)
        assert [event.what for event in life.events] == ["minted", "stalled", "died"]
