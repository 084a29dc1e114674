"""A process whose registry has one line more: what every door then says of the pass `toy`, as JSON on stdout.

    python -m tests.passes.frame.with_toy FOLDER

FOLDER has a config.yaml, whose queue `orders` has a `toy:` section and whose daemon has pages, and a playbook
`book.yaml` with the module.
"""

from __future__ import annotations

import http.client
import importlib
import importlib.util
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

REGISTRY = "emq_ops.passes.registry"
LAST = "    REHYDRATE,\n)"


def add_one_line() -> None:
    """The registry as its file says it, and one line more."""
    spec = importlib.util.find_spec(REGISTRY)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text("utf-8")
    assert source.count(LAST) == 1
    module = importlib.util.module_from_spec(spec)
    sys.modules[REGISTRY] = module
    toy = importlib.import_module("tests.support.toy_pass").TOY
    vars(module)["TOY"] = toy
    exec(compile(source.replace(LAST, "    REHYDRATE,\n    TOY,\n)"), spec.origin, "exec"), vars(module))


def main(folder: Path) -> None:
    """Asks every door."""
    add_one_line()
    emq = importlib.import_module("tests.support.cli").emq
    os.chdir(folder)

    def told(*words: str, code: int = 0) -> Any:
        ran = emq(*words)
        assert ran.code == code, (words, ran)
        return ran

    found: dict[str, Any] = {
        "schema": json.loads(told("schema").out),
        "nouns": told("--help").out,
        "command": told("toy", "--help").out,
        "modules": told("play", "--modules").out,
        "module": told("play", "--modules", "toy").out,
        "plan": told("plan", code=2).out,
        "config": told("config", "show", "orders").out,
    }
    told("apply", "--yes", "--allow-loss")
    found["play"] = json.loads(told("play", "book.yaml", "--check", "--output", "json").out)
    found["once"] = json.loads(told("up", "--once", "--output", "json").out)
    daemon = os.fork()
    if daemon == 0:
        os.dup2(os.open("log", os.O_WRONLY | os.O_CREAT), 2)
        os._exit(importlib.import_module("emq_ops.cli.main").main(["up", "--log", "json", "--ready-file", "ready"]))
    try:
        until = time.monotonic() + 60
        while not Path("ready").exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        found["request"] = json.loads(told("toy", "orders", "--toys", "3", "--output", "json").out)
        found["page"], found["metrics"] = page("/"), page("/metrics")
        found["tasks"] = json.loads(told("ps", "--output", "json").out)
    finally:
        os.kill(daemon, signal.SIGTERM)
        os.waitpid(daemon, 0)
    found["runs"] = json.loads(told("runs", "ls", "--output", "json").out)
    sys.stdout.write(json.dumps(found))


def page(path: str) -> str:
    """A page of the daemon's."""
    events = (json.loads(line) for line in Path("log").read_text().splitlines() if line.startswith("{"))
    connection = http.client.HTTPConnection("127.0.0.1", next(e["port"] for e in events if e["event"] == "http"))
    connection.request("GET", path)
    return connection.getresponse().read().decode()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
