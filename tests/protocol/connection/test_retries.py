"""What is sent again and what never is, seen from the wire: a proxy counts what reaches the server."""

from __future__ import annotations

import threading
import time

import pytest

from emq_ops.protocol.errors import (
    IncompatibleError,
    OutcomeUnknownError,
    ReconnectedError,
    ServerError,
    UnreachableError,
)
from emq_ops.protocol.ids import mint
from emq_ops.protocol.keyspace import VERSION_KEY, keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import ConnectionOptions, Server, connect
from emq_ops.protocol.transitions.enqueue import enqueue
from emq_ops.protocol.transitions.reads import counts, job_state
from tests.support.proxy import RespProxy, named, scripted, writes
from tests.support.valkey import Valkey

KEY = keys_of("mail").meta


@pytest.mark.parametrize("kind", ["cut_before", "cut_after", "drop_reply", "half_reply"])
def test_a_read_is_sent_again(proxy: RespProxy, through: Server, server: Server, kind: str) -> None:
    server.write("HSET", KEY, "max", 7)
    proxy.forget()
    proxy.arm(kind, match=named("HGET"))
    assert through.read("HGET", KEY, "max") == b"7"
    assert proxy.count(named("HGET")) == 2
    proxy.arm(kind, at=3, match=named("HGET"))
    assert through.read_many([("HGET", KEY, "max")] * 5) == [b"7"] * 5


@pytest.mark.parametrize(("kind", "done"), [("cut_before", 0), ("cut_after", 1), ("drop_reply", 1), ("half_reply", 1)])
def test_a_write_is_never_sent_again(proxy: RespProxy, through: Server, server: Server, kind: str, done: int) -> None:
    proxy.arm(kind, match=named("HINCRBY"))
    with pytest.raises(OutcomeUnknownError, match="look whether it happened"):
        through.write("HINCRBY", KEY, "n", 1)
    assert proxy.count(named("HINCRBY")) == 1
    assert server.read("HGET", KEY, "n") == (b"1" if done else None)
    assert through.write("HINCRBY", KEY, "n", 1) == done + 1


def test_a_transition_is_never_sent_again_and_the_others_of_its_flush_are_told_apart(
    proxy: RespProxy, through: Server, server: Server
) -> None:
    q = Queue(server, "mail")
    script = load("enqueue")
    enqueue(q, mint(), b"")  # the script is loaded
    jobs = [mint() for _ in range(6)]
    calls = [([q.keys.row(job), q.keys.pending], (job, b"")) for job in jobs]
    proxy.arm("cut_after", at=3, match=scripted("enqueue"))
    replies = through.run_many(script, calls)
    assert replies[:2] == [1, 1]
    assert all(isinstance(reply, OutcomeUnknownError) for reply in replies[2:])
    assert proxy.count(scripted("enqueue")) == 3
    assert counts(q).pending == 4


def test_a_script_that_only_reads_is_sent_again(proxy: RespProxy, through: Server, server: Server) -> None:
    job = mint()
    q = Queue(through, "mail")
    enqueue(q, job, b"")
    proxy.arm("cut_after", match=scripted("job_state"))
    assert job_state(q, job).value == "pending"


def test_a_dead_connection_of_the_pool_is_noticed_before_a_write(proxy: RespProxy, through: Server) -> None:
    for n in range(1, 6):
        assert through.write("HINCRBY", KEY, "n", 1) == n
        proxy.cut_all()
        deadline = time.monotonic() + 20
        while proxy._open:  # until the cut has reached the client's side
            assert time.monotonic() < deadline
    assert through.write("HINCRBY", KEY, "n", 1) == 6


def test_a_restart_of_the_server_costs_no_write() -> None:
    with Valkey(appendonly="yes", appendfsync="always") as valkey, connect(valkey.url) as server:
        for n in range(1, 4):
            assert server.write("HINCRBY", KEY, "n", 1) == n
            valkey.restart()


def test_what_came_back_is_looked_at_before_it_is_written_to() -> None:
    with Valkey() as valkey, connect(valkey.url) as server:
        assert server.write("HINCRBY", KEY, "n", 1) == 1
        valkey.restart()
        with valkey.client() as admin:
            admin.set(VERSION_KEY, "echomq:4.0.0")
        for _ in range(2):
            with pytest.raises(IncompatibleError):
                server.write("HINCRBY", KEY, "n", 1)
        with valkey.client() as admin:
            assert admin.exists(KEY) == 0
            admin.delete(VERSION_KEY)
        assert server.write("HINCRBY", KEY, "n", 1) == 1


def test_no_server_is_unreachable_and_it_is_found_again(proxy: RespProxy, through: Server) -> None:
    proxy.down()
    with pytest.raises(UnreachableError, match="can't connect") as failed:
        through.write("HINCRBY", KEY, "n", 1)
    assert failed.value.fix
    with pytest.raises(UnreachableError):
        connect(proxy.url)
    replies = through.run_many(load("enqueue"), [(["a{mail}", "b{mail}"], ("x", "y"))] * 3)
    assert all(isinstance(reply, UnreachableError) for reply in replies)
    timer = threading.Timer(0.05, proxy.up)
    timer.start()
    assert through.write("HINCRBY", KEY, "n", 1) == 1  # tried again: nothing had been sent
    timer.join()


@pytest.mark.parametrize(
    "refusal",
    [
        b"-LOADING Valkey is loading the dataset in memory\r\n",
        b"-BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
        b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
        b"-CLUSTERDOWN The cluster is down\r\n",
        b"-READONLY You can't write against a read only replica.\r\n",
        b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
        b"-READONLY You can't write against a read only replica. script: " + b"a" * 40 + b", on @user_script:3.\r\n",
    ],
    ids=lambda text: text.split()[0].decode().strip("-"),
)
def test_a_refusal_that_passes_ends_in_success_or_in_one_clear_error(
    proxy: RespProxy, through: Server, server: Server, refusal: bytes
) -> None:
    q = Queue(through, "mail")
    assert enqueue(q, mint(), b"")
    proxy.arm("answer", match=scripted("enqueue"), times=4, body=refusal)
    assert enqueue(q, mint(), b"")
    proxy.arm("answer", at=2, match=writes, times=3, body=refusal)
    calls = [([q.keys.row(job), q.keys.pending], (job, b"")) for job in (mint(), mint(), mint(), mint())]
    assert through.run_many(load("enqueue"), calls) == [1, 1, 1, 1]
    assert counts(Queue(server, "mail")).pending == 6
    proxy.arm("answer", match=writes, times=10**6, body=refusal)
    with connect(proxy.url, ConnectionOptions(patience=0.3)) as hasty:
        with pytest.raises((ServerError, UnreachableError)) as refused:
            enqueue(Queue(hasty, "mail"), mint(), b"")
        code = refusal.decode().split()[0].strip("-")
        told = "the Cluster is moving this slot" if code == "TRYAGAIN" else code
        assert refused.value.what.startswith(told)
        assert refused.value.fix
        assert "user_script" not in str(refused.value)
    assert counts(Queue(server, "mail")).pending == 6


@pytest.mark.parametrize(
    "refusal", [b"-MISCONF Errors writing to the AOF file: No space left\r\n", b"-NOREPLICAS Not enough\r\n"]
)
def test_a_refusal_that_does_not_pass_is_told_at_once(proxy: RespProxy, through: Server, refusal: bytes) -> None:
    proxy.arm("answer", match=named("HSET"), body=refusal)
    with pytest.raises(ServerError) as refused:
        through.write("HSET", KEY, "a", 1)
    assert refused.value.code == refusal.decode().split()[0].strip("-")
    assert refused.value.fix
    assert proxy.count(named("HSET")) == 1


def test_scripts_lost_in_the_middle_of_a_flush(proxy: RespProxy, through: Server, server: Server) -> None:
    """Only the calls that answered NOSCRIPT are sent again, and each is done once."""
    q = Queue(through, "mail")
    script = load("enqueue")
    jobs = [mint() for _ in range(10)]
    calls = [([q.keys.row(job), q.keys.pending], (job, b"")) for job in jobs]
    assert enqueue(q, mint(), b"")
    held = proxy.arm("hold", at=5, match=scripted("enqueue"))
    replies: list[object] = []
    thread = threading.Thread(target=lambda: replies.extend(through.run_many(script, calls)))
    proxy.forget()
    thread.start()
    held.wait()
    server.write_on("mail", "SCRIPT", "FLUSH")
    held.release()
    thread.join(20)
    assert replies == [1] * 10
    assert counts(q).pending == 11
    assert proxy.count(scripted("enqueue")) == 10 + 6


def test_a_script_that_something_keeps_flushing_is_an_error_in_the_end(proxy: RespProxy, through: Server) -> None:
    proxy.arm("answer", match=writes, times=10**6, body=b"-NOSCRIPT No matching script.\r\n")
    with pytest.raises(ServerError, match=r"NOSCRIPT.*SCRIPT FLUSH"):
        enqueue(Queue(through, "mail"), mint(), b"")


def test_a_session_says_why_it_ended_and_what_to_do(proxy: RespProxy, through: Server) -> None:
    with through.session("mail") as session:
        proxy.arm("answer", match=named("HSET"), times=1_000, body=b"-READONLY You can't write against a replica.\r\n")
        with pytest.raises(ReconnectedError, match=r"READONLY .*give the primary's address"):
            session.write("HSET", KEY, "n", 1)
        with pytest.raises(ReconnectedError, match=r"READONLY .*give the primary's address"):
            session.read("HGET", KEY, "n")


def test_a_session_ends_with_its_connection(proxy: RespProxy, through: Server) -> None:
    with through.session("mail") as session:
        assert session.write("HINCRBY", KEY, "n", 1) == 1
        proxy.arm("cut_after", match=named("HINCRBY"))
        with pytest.raises(OutcomeUnknownError):
            session.write("HINCRBY", KEY, "n", 1)
        with pytest.raises(ReconnectedError, match="ended in the middle"):
            session.write("HINCRBY", KEY, "n", 1)
    assert proxy.count(named("HINCRBY")) == 2
    with through.session("mail") as session:
        proxy.arm("cut_before", match=named("HGET"))
        with pytest.raises(ReconnectedError):
            session.read("HGET", KEY, "n")
    with through.session("mail") as session:
        session.read("HGET", KEY, "n")
    with pytest.raises(ReconnectedError, match="closed"):
        session.read("HGET", KEY, "n")
    assert through.read("HGET", KEY, "n") == b"2"


def test_a_session_waits_for_a_busy_server_on_its_own_connection(proxy: RespProxy, through: Server) -> None:
    with through.session("mail") as session:
        proxy.arm("answer", match=named("HINCRBY"), times=2, body=b"-BUSY running a script\r\n")
        assert session.write("HINCRBY", KEY, "n", 1) == 1
        proxy.arm("answer", match=named("HINCRBY"), body=b"-READONLY You can't write against a read only replica.\r\n")
        with pytest.raises(ReconnectedError, match="READONLY"):
            session.write("HINCRBY", KEY, "n", 1)


def test_a_scan_that_is_cut_begins_again(proxy: RespProxy, through: Server, server: Server) -> None:
    for n in range(500):
        server.write("SET", f"emq:{{mail}}:de:{n}", 1)
    proxy.arm("cut_after", at=7, match=named("SCAN"))
    assert len(set(through.scan(count=20))) == 500


def test_a_subscription_comes_back(proxy: RespProxy, through: Server, server: Server) -> None:
    with through.subscribe("one", "two") as heard:
        server.write("PUBLISH", "two", "first")
        assert (m := heard.get(10)) is not None
        assert (m.channel, m.data) == ("two", b"first")
        proxy.cut_all()
        assert heard.get(10) is None
        assert heard.gaps == 1
        assert heard.get(0.01) is None  # opened again
        server.write("PUBLISH", "one", "second")
        assert (m := heard.get(10)) is not None
        assert m.data == b"second"
        proxy.down()
        assert heard.get(10) is None
        with pytest.raises(UnreachableError):
            heard.get(10)


def test_many_threads_share_a_server(server: Server) -> None:
    def work() -> None:
        for _ in range(200):
            server.write("HINCRBY", KEY, "n", 1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.read("HGET", KEY, "n") == b"1600"
