"""One bound for everything below it."""

from __future__ import annotations

import threading
import time

import pytest

from emq_ops.protocol.deadline import check, deadline, remaining, within
from emq_ops.protocol.errors import DeadlineError, UnreachableError
from emq_ops.protocol.server import ConnectionOptions, connect
from tests.support.ports import free_ports
from tests.support.proxy import RespProxy, anything
from tests.support.valkey import Valkey


def test_the_earlier_bound_wins() -> None:
    assert remaining() is None
    assert within(3) == 3
    assert within(None) is None
    with deadline(100):
        assert 99 < (remaining() or 0) <= 100
        with deadline(1000):
            assert (remaining() or 0) <= 100
        with deadline(1):
            assert within(50) is not None
            assert (within(50) or 0) <= 1
            assert within(0.5) == 0.5
        assert (remaining() or 0) > 99
        assert (within(None) or 0) > 99
    assert remaining() is None


def test_a_bound_that_has_passed() -> None:
    with deadline(0):
        assert remaining() == 0.0
        with pytest.raises(DeadlineError, match="orders: the time given ran out"):
            check("orders")
    check()


def test_a_bound_is_its_threads_own() -> None:
    seen: list[float | None] = []
    with deadline(5):
        thread = threading.Thread(target=lambda: seen.append(remaining()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_connecting_and_waiting_for_a_silent_server_are_bounded() -> None:
    """A server that takes connections and never answers; one that is not there; a failover that never comes."""
    [dead] = free_ports(1)
    with Valkey() as valkey, RespProxy(valkey.url) as proxy:
        proxy.arm("drop_reply", match=anything, times=10**6)
        for url in (proxy.url, f"redis://127.0.0.1:{dead}", f"redis+sentinel://127.0.0.1:{dead}/emq"):
            began = time.monotonic()
            with deadline(0.5), pytest.raises(UnreachableError):
                connect(url, ConnectionOptions(patience=60))
            assert time.monotonic() - began < 5
