"""Cycles of an archive's driver in processes of their own, for `Zygote`.

    child = zygote.start("tests.faults.archive.run_cycles", **spec)

The spec: `url`, `queue`, `stream`, `local`, `remote`, `policy` (fields of Policy), `cycles`, `force`; `kill` for
`Effects` (kinds ``commit`` and ``file``); `timeout` seconds a cycle; `interval` seconds between cycles, until the file
`stop` is there; `environment`: more of it. The result: `reports` and `errors` of the cycles, and how many `effects` of
each kind there were.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from emq_archive.driver import Driver
from emq_archive.local.store import open_local
from emq_archive.model import Policy, Writer
from emq_archive.remote import open_remote
from emq_archive.source import StreamSource
from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from tests.support.effects import Effects
from tests.support.valkey import Valkey

STATE = "6b3f1c1e-0000-4000-8000-000000000001"


def warm() -> None:
    """What takes longest to make and is the same in each process: the SDK's descriptions, the statements of a cycle."""
    keys = {"access_key_id": "x", "secret_access_key": "x", "region": "us-east-1"}
    open_remote("s3://warm", endpoint="http://127.0.0.1:9", **keys).client()
    with Valkey() as valkey, valkey.client() as client, tempfile.TemporaryDirectory() as folder:
        for number in range(1, 30):
            client.xadd(keys_of("warm").stream("completions"), {"id": "EVT0STBBIRAKHo"}, f"{number}-1")
        policy = {"keep": 5, "page": 7, "batch": 24, "segment_bytes": 2500}
        spec = {"url": valkey.url, "queue": "warm", "stream": "completions", "policy": policy, "cycles": 2}
        cycles({**spec, "local": f"sqlite:///{folder}/warm.db", "remote": f"file:{folder}/bucket"})


def child(spec: dict[str, Any]) -> dict[str, Any]:
    os.environ.update(spec["environment"])
    root = spec["remote"].removeprefix("file:") if spec["remote"].startswith("file:") else None
    effects = Effects(spec.get("kill"), root)
    told = cycles(spec, lambda engine: effects.watch(engine, "commit"))
    effects.check()
    return {**told, "effects": effects.seen}


def cycles(spec: dict[str, Any], watch: Callable[[Engine], object] = id) -> dict[str, Any]:
    """What a child does with its spec, but for its effects and its environment. `watch` is given the local engine."""
    told: dict[str, Any] = {"reports": [], "errors": []}
    with connect(spec["url"]) as server, open_local(spec["local"]) as local:
        remote = open_remote(spec["remote"], **spec.get("remote_options", {}))
        watch(local.engine)
        policy = Policy(**spec.get("policy", {}))
        writer = Writer(spec.get("state", STATE), name=f"host:{os.getpid()}")
        source = StreamSource(Queue(server, spec["queue"]), spec["stream"])
        driver = Driver(source, local, remote, policy, None, writer)
        for number in range(spec.get("cycles", 1)):
            if number and "interval" in spec:
                time.sleep(spec["interval"])
                if Path(spec["stop"]).exists():
                    break
            try:
                with deadline(spec.get("timeout")):
                    driver.cycle(force=spec.get("force", True))
            except EmqError as fault:
                told["errors"].append([type(fault).__name__, str(fault)])
            told["reports"].append(driver.report.as_row())
        remote.close()
    return told
