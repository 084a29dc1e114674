"""Alert rules in a config and a daemon: refused with their place, told to a messenger; the dead man's switch."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from emq_ops.config.alert_conditions import OF_QUEUE, OF_SERVER, USUAL
from emq_ops.config.models import HeartbeatSection
from emq_ops.daemon.heartbeat import Heartbeat
from emq_ops.policy.environment import Environment
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import enqueue
from tests.support.cli import emq
from tests.support.daemons import site, wait_for
from tests.support.valkey import Valkey


def test_the_docs_list_the_names_and_our_rules() -> None:
    text = (Path(__file__).parents[2] / "docs/monitoring.md").read_text().partition("## Alerts")[2]
    cells = {
        name
        for line in text.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    }
    assert cells == {*OF_QUEUE, *USUAL, "queue.name", *(f"server.{name}" for name in OF_SERVER)}


BASE = "queues: {orders: {stalled: {}}}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alert_rules: [{name: a, when: 'ded > 1'}]", "2:31: unknown name 'ded' (did you mean 'dead'?)"),
        ("alert_rules: [{name: a, when: 'dead >'}]", "2:31: in the expression"),
        (
            "alert_rules: [{name: a, when: 'server.memry > 1'}]",
            "unknown name 'server.memry' (did you mean 'server.memory'?)",
        ),
        ("alert_rules: [{name: a, when: 'dead.x > 1'}]", "'dead' is a plain value"),
        ("alert_rules: [{name: a, when: 'dead > 1', for: soon}]", "alert_rules[0].for"),
        ("alert_rules: [{name: a b, when: 'dead > 1'}]", "alert_rules[0].name"),
        ("alert_rules: [{name: a, when: 'true'}, {name: a, when: 'true'}]", "alert_rules[1].name"),
        ("heartbeat: {url: 'ftp://x'}", "heartbeat.url"),
        ("heartbeat: {url: 'https://me:secret@x/y'}", "heartbeat.url"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(BASE + text + "\n")
    ran = emq("-c", file, "validate")
    assert ran.code == 4
    assert said in ran.err
    assert "Traceback" not in ran.err


class Listener:
    """Takes whatever is sent to it."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes]] = []
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def _take(self) -> None:
                got.append((self.path, self.rfile.read(int(self.headers.get("Content-Length") or 0))))
                self.send_response(200)
                self.end_headers()

            do_GET = do_POST = _take

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def test_a_heartbeat_beats_while_all_is_well_and_goes_nowhere_else(listener: Listener) -> None:
    well, failed = threading.Event(), list[str]()
    env = Environment({"PING": f"http://127.0.0.1:{listener.port}/beat"})
    beat = Heartbeat(well.is_set, env, failed.append)
    beat.follow(HeartbeatSection(url="${PING}", every=20))
    beat.follow(HeartbeatSection(url="${PING}", every=20))  # not well: it asks nothing
    well.set()
    wait_for(lambda: len(listener.got) > 2)
    assert {path for path, _ in listener.got} == {"/beat"}
    beat.follow(None)
    strange = Heartbeat(well.is_set, replace(env, hosts=("ours.example",)), failed.append)
    strange.follow(HeartbeatSection(url="${PING}", every=20))
    wait_for(lambda: failed)
    strange.follow(None)
    assert "may not be asked" in failed[0]
    assert len(failed) == 1


@pytest.mark.soak(minutes=2)
def test_a_daemon_tells_a_messenger_and_the_command_line_shows_and_silences(
    tmp_path: Path, valkey: Valkey, server: Server, listener: Listener
) -> None:
    q = Queue(server, "orders")
    text = (
        f"server: {{url: '{valkey.url}'}}\nstate: {{url: 'sqlite:///state.db'}}\n"
        f"alerts: [{{url: 'json://127.0.0.1:{listener.port}/alert'}}]\n"
        f"heartbeat: {{url: 'http://127.0.0.1:{listener.port}/beat', every: 1s}}\n"
        "alert_rules:\n  - {name: waits, when: 'waiting > 1', severity: page, say: start workers}\n"
        "  - {name: other, when: 'waiting > 2'}\n"
        "queues: {orders: {stalled: {every: 1s}}}\n"
    )
    with site(tmp_path / "s", text) as here:
        here.run("alert", "silence", "nosuch", "--for", "1h", "--why", "x", code=4)
        here.run("apply", "--yes")
        assert here.json("alert", "silence", "other", "--for", "1h", "--why", "known")["rules"] == "other"
        assert here.json("alert", "test") == [
            {"alert": f"json://127.0.0.1:{listener.port}/alert", "taken": True, "error": None}
        ]
        for _ in range(3):
            enqueue.enqueue(q, ids.mint(), b"x")
        daemon = here.up()

        def sent() -> list[str]:
            return [json.loads(body)["message"] for path, body in listener.got if path == "/alert"]

        wait_for(lambda: "waits on orders (waiting > 1; waiting 3): start workers" in sent())
        rows = {row["rule"]: row for row in here.json("alert", "ls") if row["rule"] in ("waits", "other")}
        assert {name: row["state"] for name, row in rows.items()} == {"waits": "firing", "other": "firing"}
        assert (rows["other"]["told_ms"], rows["other"]["why"]) == (None, "known")
        assert any(path == "/beat" for path, _ in listener.got)
        server.write("DEL", q.keys.pending)
        wait_for(lambda: "waits is over on orders" in sent())
        assert not [one for one in sent() if one.startswith("other")]
        [silenced] = here.json("alert", "ls", "--silences")
        here.run("alert", "unsilence", str(silenced["id"]))
        here.run("alert", "unsilence", str(silenced["id"]), code=4)
        daemon.stop()
