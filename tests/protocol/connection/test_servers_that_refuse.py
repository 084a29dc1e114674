"""A server that is busy, full, closed to us or none at all: what is waited for, and what is told at once."""

from __future__ import annotations

import hashlib
import threading
import time

import pytest

from emq_ops.protocol.errors import (
    AccessRefusedError,
    EmqError,
    ServerError,
    UnreachableError,
)
from emq_ops.protocol.ids import mint
from emq_ops.protocol.keyspace import VERSION_KEY, keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import Script
from emq_ops.protocol.server import ConnectionOptions, Server, connect
from emq_ops.protocol.transitions.enqueue import enqueue
from tests.support.proxy import RespProxy, anything
from tests.support.valkey import Valkey

KEY = keys_of("mail").meta


def _until_refused(valkey: Valkey, options: ConnectionOptions) -> ServerError:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            connect(valkey.url, options).close()
        except ServerError as refused:
            return refused
    raise AssertionError("never refused")


def test_a_busy_server_is_waited_for(valkey: Valkey, server: Server) -> None:
    with valkey.client() as admin:
        admin.config_set("busy-reply-threshold", 20)
        slow = "local t = redis.call('TIME')[1] + 0; while redis.call('TIME')[1] - t < 2 do end return 1"
        thread = threading.Thread(target=lambda: admin.eval(slow, 0))
        try:
            thread.start()
            busy = _until_refused(valkey, ConnectionOptions(patience=0.1))
            assert busy.code == "BUSY"
            assert "SCRIPT KILL" in str(busy)
            assert server.write("HINCRBY", KEY, "n", 1) == 1
        finally:
            thread.join()
            admin.config_set("busy-reply-threshold", 5000)


def test_a_full_server(valkey: Valkey, server: Server) -> None:
    with valkey.client() as admin:
        admin.config_set("maxmemory", 1)
        try:
            with pytest.raises(ServerError) as full:
                enqueue(Queue(server, "mail"), mint(), b"x")
            assert (full.value.code, "maxmemory" in str(full.value)) == ("OOM", True)
        finally:
            admin.config_set("maxmemory", 0)
    assert list(server.scan()) == []


def test_who_may_not_come_in_is_told_so_at_once(valkey: Valkey, server: Server) -> None:
    with valkey.client() as admin:
        admin.execute_command("ACL", "SETUSER", "bob", "on", ">right", "~emq:*", f"%R~{VERSION_KEY}", "+@read")
        try:
            with pytest.raises(AccessRefusedError, match=r"WRONGPASS.*check user and password"):
                connect(valkey.url, ConnectionOptions(username="bob", password="wrong"))
            with connect(valkey.url, ConnectionOptions(username="bob", password="right")) as bob:
                assert bob.read("HGET", KEY, "x") is None
                with pytest.raises(ServerError, match=r"NOPERM.*hset.*examples/acl") as refused:
                    bob.write("HSET", KEY, "x", 1)
                assert refused.value.code == "NOPERM"
            admin.execute_command("ACL", "SETUSER", "bob", "resetkeys", "~emq:*")
            with pytest.raises(ServerError, match="NOPERM"):  # a fence that can't be read is no accepted fence
                connect(valkey.url, ConnectionOptions(username="bob", password="right"))
            admin.execute_command("ACL", "SETUSER", "default", "off")
            with pytest.raises(AccessRefusedError, match=r"NOAUTH.*give user and password"):
                connect(valkey.url)
        finally:
            admin.execute_command("ACL", "SETUSER", "default", "on")
            admin.execute_command("ACL", "DELUSER", "bob")


def test_a_user_without_a_password_is_refused_before_anything_is_sent(valkey: Valkey) -> None:
    with pytest.raises(EmqError, match="without a password"):
        connect(valkey.url, ConnectionOptions(username="bob"))


def test_too_many_clients(valkey: Valkey, server: Server) -> None:
    with valkey.client() as admin:
        before = admin.config_get("maxclients")["maxclients"]
        admin.config_set("maxclients", 1)
        try:
            with pytest.raises(UnreachableError, match="max number of clients"):
                connect(valkey.url)
        finally:
            admin.config_set("maxclients", before)


@pytest.mark.parametrize(
    "reply",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x0a", b":7\r\n", b"$-1\r\n", b"*0\r\n"],
    ids=["http", "tls", "number", "nothing", "list"],
)
def test_what_answers_and_is_no_valkey_is_one_line(proxy: RespProxy, reply: bytes) -> None:
    proxy.arm("answer", match=anything, times=1_000, body=reply)
    with pytest.raises(UnreachableError, match="another program listens there"):
        connect(proxy.url)


def test_a_wrong_type_inside_a_script_names_script_line_and_keys(server: Server) -> None:
    source = b"return redis.call('ZADD', KEYS[1], 1, 'x')"
    script = Script("made_up", source, hashlib.sha1(source, usedforsecurity=False).hexdigest())
    server.write("SET", KEY, "text")
    for _ in range(2):  # by its source, then by its SHA: the server wraps the two differently
        with pytest.raises(EmqError) as damage:
            server.run(script, [KEY])
        assert damage.value.what == f"EMQDATA {KEY} is not of the kind that the wire says"
        assert damage.value.where is not None
        assert damage.value.where.endswith("lua/made_up.lua:1")
