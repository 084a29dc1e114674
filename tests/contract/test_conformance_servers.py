"""The recorded transitions on other servers than the embedded one: a 3-node cluster, and Debian's redis-server."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from emq_ops.protocol.conformance.replay import Vector, read_vectors, replay_all
from emq_ops.protocol.server import Server, connect
from tests.support.keyspace import recorded
from tests.support.valkey import Valkey

VECTORS = read_vectors(recorded("transitions.json"))


def _sample() -> list[Vector]:
    """A third of each kind of transition: the whole set runs on the embedded server."""
    return [vector for place, vector in enumerate(VECTORS) if place % 3 == 0]


def _disagreeing(server: Server, vectors: list[Vector]) -> dict[str, list[str]]:
    return {v.vector: v.lines for v in replay_all(server, vectors) if not v.agrees}


def test_on_a_cluster(on_cluster: Server) -> None:
    assert _disagreeing(on_cluster, _sample()) == {}


REDIS = shutil.which("redis-server")


@pytest.mark.skipif(REDIS is None and not os.environ.get("EMQ_OPS_CI"), reason="no redis-server; CI installs one")
def test_on_debians_redis() -> None:
    assert REDIS is not None, "redis-server is missing in CI"
    with Valkey(binary=Path(REDIS)) as redis, connect(redis.url) as server:
        assert "redis_version" in server.info("orders", "server")
        assert _disagreeing(server, _sample()) == {}
