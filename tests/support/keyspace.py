"""The recorded live keyspace, and whole keyspaces of test servers."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

from emq_ops.protocol.conformance.keyspace import dump_keyspace, load_keyspace
from emq_ops.protocol.server import Server

SHARED = Path(os.environ.get("EMQ_OPS_SHARED", Path(__file__).parents[3] / "shared"))
"""The recordings lie beside the checkout; their copies under tests/data are used where that folder is not."""
DATA = Path(__file__).parents[1] / "data"


def recorded(name: str) -> Path:
    """A recorded file: the one beside the checkout if it is there, else our copy."""
    beside = next(iter(sorted(SHARED.rglob(name))), None) if SHARED.is_dir() else None
    return beside or DATA / name


@functools.cache
def live_keyspace() -> dict[str, Any]:
    """The keys of the recorded live keyspace, to be read only."""
    document = json.loads(recorded("live-keyspace.json").read_bytes())
    keys: dict[str, Any] = document["keys"]
    return keys


def load_live(server: Server) -> None:
    """Puts the recorded live keyspace on an empty server."""
    load_keyspace(server, live_keyspace(), server.now_ms("orders"))


def dump(server: Server) -> dict[str, dict[str, Any]]:
    """The whole keyspace of a server, for comparing before and after."""
    return dump_keyspace(server)


def of_emq(keyspace: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Without our own keys."""
    return {key: value for key, value in keyspace.items() if not key.startswith("emq-ops:")}
