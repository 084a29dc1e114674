"""What a run shows: when it began, and how long it took."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.cli import emq
from tests.support.http_proxy import HttpProxy
from tests.support.s3 import CREDENTIALS, S3Server
from tests.support.valkey import Valkey


def test_a_run_has_its_duration(
    tmp_path: Path, server: Server, s3: S3Server, monkeypatch: pytest.MonkeyPatch, valkey: Valkey
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    with HttpProxy(s3.url) as slow:
        slow.arm("delay", seconds=0.4)
        Path("config.yaml").write_text(
            f'server: {{url: "{valkey.url}"}}\nstate: {{url: "sqlite:///state.db"}}\n'
            f'archive: {{remote: {{url: "s3://{s3.bucket()}/a", endpoint: "{slow.url}"}}}}\n'
        )
        server.write("XADD", Queue(server, "orders").keys.stream("completions"), "1-0", "job", "a")
        assert emq("archive", "fold", "orders").code == 0
    [run] = emq("runs", "ls", "--kind", "archive", "--output", "json").json
    assert run["took_ms"] == run["ended_ms"] - run["started_ms"] >= 400
