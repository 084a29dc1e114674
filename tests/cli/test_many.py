"""One command over several queues: names, globs, and several between commas; each has its turn, and one report."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import reads
from tests.support.cli import Ran, emq
from tests.support.passing import add, kill_row
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}}}
queues:
  "mail-*": {{dead: {{every: 1h, keep: 1, archive: false}}, streams: {{completions: {{every: 1h}}}}}}
  mail-eu: {{stalled: {{every: 1h}}}}
  mail-us: {{}}
"""
Ops = Callable[..., Ran]
LANE = "GRP0SS8QFjgi3i"
NAMES = ["mail-eu", "mail-us"]


@pytest.fixture
def ops(valkey: Valkey, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ops:
    """A folder with a config; two queues that a glob takes and one that it does not, each with work, a lane, deaths and
    a record."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG.format(url=valkey.url))
    for name in (*NAMES, "orders"):
        q = Queue(server, name)
        add(q, 1, group=LANE)
        kill_row(q, 3)
        server.write("XADD", q.keys.stream("completions"), "1-0", "evt", ids.mint("EVT"), "job", ids.mint())
    return emq


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("sweep {}", None),
        ("trim {} --dry-run", ("victims", 2)),
        ("promote {}", None),
        ("archive fold {} completions", ("folded", 1)),
        ("queue show {}", ("dead", 3)),
        ("config show {}", None),
        ("hold {} --for 1h", None),
        ("release {}", ("released", False)),
        ("lane ls {}", ("waiting", 1)),
        (f"lane show {{}} {LANE}", ("waiting", 1)),
        (f"lane limit {{}} {LANE} 2", ("limit", 2)),
        (f"lane weight {{}} {LANE} 3", ("weight", 3)),
        ("lane pause {} *", ("paused", True)),
    ],
)
@pytest.mark.parametrize("selector", ["mail-*", "mail-eu,mail-us"])
def test_each_queue_has_its_turn(words: str, told: tuple[str, object] | None, selector: str, ops: Ops) -> None:
    ran = ops(*words.format(selector).split(), "--output", "json")
    assert ran.code == 0, ran.err
    assert [row["queue"] for row in ran.json] == NAMES
    if told is not None:
        assert {row[told[0]] for row in ran.json} == {told[1]}


def test_several_streams_of_the_archive(ops: Ops) -> None:
    assert ops("archive", "fold", "*", "*").code == 0  # streams that the config names
    for words in ("status {} *", "verify {} *", "compact {} * --dry-run", "reship {} * --dry-run", "read {} *"):
        ran = ops("archive", *words.format("mail-*").split(), "--output", "json")
        assert (ran.code, [row["queue"] for row in ran.json]) == (0, NAMES), (words, ran.err)
    assert ops("archive", "verify", "post-*").code == 4
    assert len(ops("archive", "status", "*", "--output", "json").json) == 2


def test_a_queue_that_is_refused_does_not_stop_the_others(ops: Ops) -> None:
    assert ops("hold", "mail-eu", "--for", "1h").code == 0
    ran = ops("sweep", "mail-*", "orders", "--output", "json")
    assert (ran.code, [(row["queue"], row["status"]) for row in ran.json]) == (
        1,
        [("mail-eu", "held"), ("mail-us", "done"), ("orders", "done")],
    )
    assert ops("sweep", "mail-*", "ordres").code == 4  # before anything is begun
    rows = ops("runs", "ls", "mail-*", "--output", "json").json
    assert {row["queue"] for row in rows} == set(NAMES)
    assert ops("runs", "ls", "mail-us", "orders").code == 0
    old = ops("runs", "ls", "--queue", "mail-us", "--output", "json")
    assert ([row["queue"] for row in old.json], "now emq-ops runs ls QUEUE" in old.err) == (["mail-us"], True)
    assert ops("maintenance", "start", "mail-*", "orders", "--for", "1h").code == 0
    assert len(ops("maintenance", "ls", "--output", "json").json) == 2
    assert "now emq-ops maintenance stop QUEUE" in ops("maintenance", "stop", "--queues", "mail-*").err


def test_a_text_is_found_in_the_archive_where_the_server_lost_it(ops: Ops, server: Server) -> None:
    for name in NAMES:
        q = Queue(server, name)
        for n in range(3):
            fields = {"evt": ids.mint("EVT"), "job": ids.mint(), "error": f"needle {n}"}
            server.write("XADD", q.keys.stream("completions"), "*", *(x for pair in fields.items() for x in pair))
    assert ops("archive", "fold", "mail-*", "completions").code == 0
    for name in NAMES:
        server.write("DEL", Queue(server, name).keys.stream("completions"))
    whole = ops("job", "find", "needle", "--output", "json")
    assert [(row["queue"], row["error"]) for row in whole.json] == [(q, f"needle {n}") for q in NAMES for n in range(3)]
    assert "and 8 records of the archive" in whole.err
    found, argv = [], ["job", "find", "needle", "--queue", "mail-*"]
    for _ in range(20):
        ran = ops(*argv, "--most", "3", "--output", "json")
        assert ran.code == 0, ran.err
        found += [row["record"] for row in ran.json if "record" in row]
        go_on = re.search(r"not to the end: emq-ops (.*)", ran.err)
        if go_on is None:
            break
        argv = shlex.split(go_on[1])
    assert found == [row["record"] for row in whole.json]
    assert ops("job", "find", "needle", "--from", "archive:x").code == 4


def test_quiet_shows_what_failed_and_verbose_says_why(ops: Ops) -> None:
    ran = ops("sweep", "mail-*", "-q")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert ops("hold", "mail-eu", "--for", "1h", "-q").out == ""
    ran = ops("-q", "sweep", "mail-*", "--output", "json")
    assert (ran.code, [row["queue"] for row in ran.json], "mail-eu: nothing was done" in ran.err) == (
        1,
        ["mail-eu"],
        True,
    )
    assert (ops("queue", "pause", "orders", "-q").err, ops("queue", "ls", "-q").err) == ("", "")
    assert "mail-us: dead.keep 1 (config.yaml:" in ops("trim", "mail-us", "--dry-run", "-v").err
    ran = ops("queue", "ls", "--url", "redis://127.0.0.1:1", "-v")
    assert (ran.code, "\n  because: " in ran.err) == (3, True), ran.err


def test_commas_are_part_of_a_name_where_a_queue_has_them(ops: Ops, server: Server) -> None:
    q = Queue(server, "mail-eu,mail-us")
    add(q, 1)
    assert ops("queue", "pause", "mail-eu,mail-us").code == 0
    assert [reads.is_paused(Queue(server, name)) for name in (q.name, *NAMES)] == [True, False, False]
