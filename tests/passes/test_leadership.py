"""Leading a queue: one at a time, by the server's clock, with tokens that never repeat."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.events import Event
from emq_ops.passes.lease.holder import Holder, start_of, who
from emq_ops.passes.lease.owner import ForeignQueueError, LeaseInfo, lease_info
from emq_ops.passes.lease.queue_lease import HeldQueueError, QueueLease
from emq_ops.passes.lease.renewal import renew
from emq_ops.protocol.errors import FenceError, OutcomeUnknownError, ServerError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server, connect
from tests.support.passing import kept, until
from tests.support.proxy import RespProxy, scripted
from tests.support.valkey import Valkey


def test_one_at_a_time(server: Server, ledger: Ledger) -> None:
    first, second = QueueLease(server, ledger, "mail"), QueueLease(server, ledger, "mail")
    assert first.acquire().token == 1
    with pytest.raises(HeldQueueError, match=r"the command \S+@\S+:\d+ leads this queue") as caught:
        second.try_acquire()
    assert caught.value.holder.nonce == first.me.nonce
    assert 0 < caught.value.for_ms <= first.lease_ms
    first.release()
    assert second.acquire().token == 2  # who waited used up no token
    found = lease_info(server, "mail")
    assert found is not None
    assert (found.state, found.token, found.run) == (ledger.state, 2, server.run_id("mail"))
    second.release()
    found = lease_info(server, "mail")
    assert found is not None
    assert (found.token, found.stands) == (2, False)  # the highest token stays known


def test_waiting_for_a_lease(server: Server, ledger: Ledger) -> None:
    first, second = QueueLease(server, ledger, "mail"), QueueLease(server, ledger, "mail")
    first.acquire()
    with pytest.raises(HeldQueueError):
        second.acquire(wait_seconds=0.05)
    threading.Timer(0.1, first.release).start()
    assert second.acquire(wait_seconds=10).token == 2


def test_a_lease_that_is_not_renewed_is_taken_over(server: Server, ledger: Ledger) -> None:
    first = QueueLease(server, ledger, "mail", lease_ms=80)
    first.acquire()
    assert QueueLease(server, ledger, "mail").acquire(wait_seconds=5).token == 2
    lost: list[Event] = []
    first.emit = lost.append
    with pytest.raises(FenceError, match="token 2, ours is 1"):
        first.renew()
    assert [event.name for event in lost] == ["lease_lost"]


def test_a_kept_lease_outlives_its_length(server: Server, ledger: Ledger) -> None:
    def now() -> LeaseInfo:
        found = lease_info(server, "mail")
        assert found is not None
        return found

    with kept(server, ledger, "mail", lease_ms=6_000) as fence:
        taken = now().until_ms
        until(lambda: now().until_ms > taken + 3_000)  # renewed, and renewed again
        assert (now().token, now().stands) == (fence.token, True)
    assert not now().stands


HOLDER = """
import os, signal, sys
from emq_ops.ledger.ledger import open_ledger
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.protocol.server import connect
QueueLease(connect(sys.argv[1]), open_ledger(sys.argv[2]), "mail", lease_ms=60_000).acquire()
print("held", flush=True)
signal.pause()
"""


def test_a_dead_process_of_this_host_is_passed_over_at_once(
    valkey: Valkey, server: Server, ledger: Ledger, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", HOLDER, valkey.url, f"sqlite:///{tmp_path}/state.db"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(HeldQueueError):
            QueueLease(server, ledger, "mail").try_acquire()
        holder.kill()
        # A zombie still has its number; it is dead all the same.
        until(lambda: start_of(holder.pid) == "")
        events: list[Event] = []
        assert QueueLease(server, ledger, "mail", emit=events.append).try_acquire().token == 2
        assert [event.facts()["took_over"] for event in events] == ["1"]


def test_a_process_is_called_alike_wherever_it_is_named(server: Server, ledger: Ledger) -> None:
    assert str(Holder.me("daemon")) == who()
    QueueLease(server, ledger, "mail").try_acquire()
    found = lease_info(server, "mail")
    assert found is not None
    assert str(found.holder) == who()
    assert f"the command {who()} leads" in str(HeldQueueError("mail", found.holder, 1))


def test_who_is_surely_dead() -> None:
    me = Holder.me("command")
    assert not me.surely_dead
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert Holder("command", me.host, me.machine, gone.pid, "1").surely_dead
    assert Holder("command", me.host, me.machine, me.pid, "1").surely_dead  # the number has another process now
    assert not Holder("command", "elsewhere", "another boot", gone.pid, "1").surely_dead
    assert not Holder("command", me.host, me.machine, 0, "").surely_dead


def test_a_second_state_is_refused_with_what_it_found(server: Server, ledger: Ledger, tmp_path: Path) -> None:
    first = QueueLease(server, ledger, "mail")
    first.acquire()
    with open_ledger(f"sqlite:///{tmp_path}/other.db") as other:
        second = QueueLease(server, other, "mail")
        for disown in ("", ledger.state):  # while the lease stands, nobody's word helps
            with pytest.raises(ForeignQueueError, match=ledger.state) as caught:
                second.try_acquire(disown=disown)
            assert caught.value.holder.nonce == first.me.nonce
        first.release()
        with pytest.raises(ForeignQueueError):  # given up, but it is still that state's queue
            second.try_acquire()
        assert second.try_acquire(disown=ledger.state).token == 2  # above the highest that the server had
        with pytest.raises(ForeignQueueError, match=other.state):
            first.try_acquire()


def test_a_lease_is_of_one_life_of_the_server(durable: Valkey, ledger: Ledger) -> None:
    with connect(durable.url) as server:
        leadership = QueueLease(server, ledger, "mail")
        before = leadership.acquire()
        durable.restart()
        with pytest.raises(FenceError, match="another life"):
            leadership.renew()
        after = leadership.acquire()
        assert after.token == before.token + 1
        assert after.run != before.run


def test_a_keyspace_that_went_back_brings_no_old_token_back(ledger: Ledger) -> None:
    with Valkey() as forgetful, connect(forgetful.url) as server:
        leadership = QueueLease(server, ledger, "mail")
        assert leadership.acquire().token == 1
        forgetful.restart()  # nothing was kept
        with pytest.raises(FenceError, match="no lease"):
            leadership.renew()
        assert leadership.acquire().token == 2


def test_a_lost_reply_is_asked_again_under_a_higher_token(valkey: Valkey, server: Server, ledger: Ledger) -> None:
    with RespProxy(valkey.url) as proxy, connect(proxy.url) as through:
        proxy.arm("cut_after", match=scripted("lease_acquire"))
        leadership = QueueLease(through, ledger, "mail")
        assert leadership.acquire().token == 2
        proxy.arm("cut_after", match=scripted("lease_acquire"), times=9)
        with pytest.raises(OutcomeUnknownError):
            QueueLease(through, ledger, "orders").acquire()


def test_taking_a_lease_at_the_servers_memory_limit(ledger: Ledger) -> None:
    """C10, of the lease."""
    with Valkey(maxmemory_policy="noeviction") as full, connect(full.url) as server:
        with full.client() as admin:
            admin.set("ballast", "x" * 1_000_000)
            admin.config_set("maxmemory", admin.info("memory")["used_memory"] // 2)
        with pytest.raises(ServerError, match="OOM"):
            server.write("SET", "a", "b")
        leadership = QueueLease(server, ledger, "mail")
        leadership.acquire()
        leadership.renew()
        leadership.release()


def test_a_lease_of_another_clock_proves_nothing(server: Server, ledger: Ledger) -> None:
    QueueLease(server, ledger, "mail").acquire()
    server.write("HSET", keys_of("mail").lease, "until", server.now_ms("mail") + 3_600_000)
    assert QueueLease(server, ledger, "mail").try_acquire().token == 2


@pytest.mark.parametrize("transition", ["sweep_pass", "sweep_native", "dead_trim", "exempt_tidy"])
def test_every_script_of_a_pass_is_refused_without_the_lease(server: Server, ledger: Ledger, transition: str) -> None:
    leadership = QueueLease(server, ledger, "mail")
    fence = leadership.acquire()
    leadership.release()
    [fault] = renew(server, [fence], 1_000)
    assert isinstance(fault, FenceError)
    assert "the lease has expired" in fault.what
    k = Queue(server, "mail").keys
    keys = {
        "sweep_pass": [k.lease, k.swept, k.exempt, k.active, k.pending, k.dead],
        "sweep_native": [k.lease, k.swept, k.active, k.pending, k.dead],
        "dead_trim": [k.lease, k.dead, k.exempt],
        "exempt_tidy": [k.lease, k.exempt],
    }[transition]
    with pytest.raises(FenceError, match="EMQFENCE the lease has expired"):
        server.run(load(transition), keys, [*fence.args, k.base, "RUN00000000001", 1, "", "", 1, 100, "", 3, "all"])
