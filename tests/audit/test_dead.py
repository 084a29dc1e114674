"""``audit dead``: groups, suspects, bursts, what vanished; and every output safe whatever strangers wrote."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tracemalloc
from html.parser import HTMLParser
from pathlib import Path

import pytest

from emq_ops.audit.dead import MOST_GROUPS, audit_dead
from emq_ops.audit.page import dead_page
from emq_ops.audit.spread import Histogram, age_class
from emq_ops.cli.output import emit_rows
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.selection import EmptySelectionError, Selection
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import jobs, recover
from tests.audit.cli import emq
from tests.audit.working import failed, lapse, stalled, swept
from tests.support.keyspace import dump, load_live
from tests.support.valkey import Valkey

HOSTILE = (
    b"<script>alert(1)</script>",
    b'"><img src=x onerror=alert(1)>',
    b"\x1b[2J\x1b]0;title\x07 cleared \x9b31m \xe2\x80\xae reversed",
    b'=HYPERLINK("http://evil.test","x")',
    b"+cmd|' /C calc'!A0",
    b"@SUM(1)",
    b"-2+3",
    b"line one\r\nline two\ttab",
    b"\xff\xfe\x00 bytes",
    b"{{ 7 * 7 }} ${x} %s </title></style></svg>",
    "\u2066isolated\u2069 \u200fmarks\u200b \u2028line \x85next \ufeff \U000e0041tag".encode(),
    '\uff1dHYPERLINK("http://evil.test") and a bomb \U0001f4a3\U0001f3fd'.encode(),
    b'"}]</script><script>alert(2)</script><!--',
    b"M" * 5_000_000,
)


UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")
"""What steers a terminal, turns or hides text, or ends a line."""


class Page(HTMLParser):
    """What a browser would see: every tag with its attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def check_page(text: str) -> Page:
    """One file, nothing from elsewhere, no script, nothing that an attribute could run."""
    page = Page(text)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "img", "link", "iframe", "object", "embed", "base", "form", "a", "use", "image"}
    for _, attributes in page.tags:
        assert not {n for n in attributes if n.startswith("on") or n in ("src", "href", "xlink:href", "style")}
    style = re.sub(r"/\*.*?\*/", "", text[text.index("<style>") : text.index("</style>")])
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in text
    assert not UNSAFE.search(text)
    return page


def test_the_live_dead_letters_in_three_outputs(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    load_live(server)
    before = dump(server)
    ran = emq("audit", "dead", "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/none.db", "--output", "json")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert document["dead"] == 86
    counts: dict[str, int] = {}
    for group in document["groups"]:
        counts[group["error"]] = counts.get(group["error"], 0) + group["jobs"]
    assert counts == {
        "stalled": 22,
        "** (KeyError) key :email not found in: %{id: #}": 12,
        "HTTP 503 Service Unavailable": 12,
        '=HYPERLINK("http://evil.test")': 12,
        "connection refused #ip:#": 11,
        "timeout after #ms calling https://api.example.test/v1/orders/#": 8,
        "<script>alert(#)</script>": 7,
        "": 2,
    }
    ran = emq("audit", "dead", "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/none.db", "--output", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert sum(int(row["jobs"]) for row in rows) == 86
    assert '\'=HYPERLINK("http://evil.test")' in {row["error"] for row in rows}
    assert not [cell for row in rows for cell in row.values() if cell[:1] in "=+-@\t\r" and cell]
    table = emq("audit", "dead", "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/none.db")
    assert "<script>alert(#)</script>" in table.out
    page = tmp_path / "page.html"
    emq("audit", "dead", "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/none.db", "--html", str(page))
    seen = check_page(page.read_text("utf-8"))
    assert "<script>alert(18)</script>" in seen.text
    assert '=HYPERLINK("http://evil.test")' in seen.text
    assert dump(server) == before
    assert not (tmp_path / "none.db").exists()


def test_hostile_texts_are_safe_everywhere(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    q = Queue(server, 'q<b>"=1')
    for error in HOSTILE:
        failed(q, error, payload=error[:100])
    failed(Queue(server, "\u202eq"), b"in a queue that turns text")
    common = ("audit", "dead", "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/none.db")
    for extra in ((), ("--list",)):
        for output in ("table", "csv", "json", "jsonl"):
            ran = emq(*common, *extra, "--output", output)
            assert ran.code == 0, ran.err
            told = ran.out + ran.err
            assert not UNSAFE.search(told), (extra, output)
            assert len(told) < 100_000
            assert "5000000 bytes" in told or not extra
            if output == "csv":
                cells = [cell for row in csv.reader(io.StringIO(ran.out)) for cell in row]
                assert not [cell for cell in cells if cell[:1] in tuple("=+-@\uff1d")]
    page = check_page(emq(*common, "--html", "-").out)
    assert "onerror=alert(1)" in page.text
    assert "{{ # * # }}" in page.text
    assert "5000000 bytes" in page.text
    job = jobs_of(q)[0]
    life = emq("audit", "job", job, "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/none.db", "--html", "-")
    assert life.code == 0, life.err
    check_page(life.out)
    with open_ledger(f"sqlite:///{tmp_path}/state.db"):
        pass
    acted = emq(
        "audit", "dead", "\u202eq", *common[2:4], "--state", f"sqlite:///{tmp_path}/state.db", "--requeue", "--yes"
    )
    assert (acted.code, "1 requeued" in acted.err, UNSAFE.search(acted.err)) == (0, True, None)


def test_bytes_of_a_command_line_that_are_no_text(server: Server, valkey: Valkey) -> None:
    """As the shell hands them over; payloads and errors may be any bytes."""
    q = Queue(server, "orders")
    one, two = failed(q, b"odd \xff", payload=b"\x00\xff\xfe"), failed(q, b"odd \xfe", payload=b"\xfe\xff")

    def listed(*argv: str) -> list[str]:
        ran = emq("audit", "dead", "orders", *argv, "--url", valkey.url, "--list", "--output", "json")
        assert ran.code == 0, ran
        return [row["job"] for row in json.loads(ran.out)]

    assert listed("--payload", os.fsdecode(b"\xff\xfe")) == [one]
    assert listed("--error", os.fsdecode(b"odd \xfe")) == [two]
    assert listed("--job", two, "--job", two, "--job", one) == [one, two]
    for argv in (("--payload", os.fsdecode(b"\xff\xff")), ("--error", "*a" * 40 + "*b"), ("--payload", "x" * 100_000)):
        ran = emq("audit", "dead", "orders", *argv, "--url", valkey.url)
        assert (ran.code, ran.out, ran.err.count("\n")) == (4, "", 1)
        assert len(ran.err) < 1000
    [other] = [failed(Queue(server, "mail"), b"x")]
    assert emq("audit", "dead", "orders", "--job", other, "--url", valkey.url, "--remove", "--yes").code == 4


def jobs_of(q: Queue) -> list[str]:
    return [job.decode() for job in q.server.read("ZRANGE", q.keys.dead, 0, -1)]


@pytest.mark.browser
def test_a_browser_shows_the_page_and_runs_nothing(server: Server, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    assert chromium, "no chromium"
    q = Queue(server, "orders")
    for error in HOSTILE:
        failed(q, error + b"<script>document.title='run'</script>")
    page = tmp_path / "page.html"
    page.write_text(dead_page(audit_dead(server, ["orders"], Selection())), "utf-8")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--dump-dom")
    shown = subprocess.run([chromium, *flags, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    assert "<title>Dead jobs</title>" in shown.stdout
    assert "alert(1)" in shown.stdout
    assert "<script" not in shown.stdout


def test_causes_and_filters(server: Server, ledger: Ledger, valkey: Valkey) -> None:
    q = Queue(server, "orders")
    by_error = [failed(q, b"HTTP 503"), failed(q, b"refused 10.0.0.1:1"), failed(q, b"refused 10.0.0.2:2")]
    by_stall = stalled(q, 2)
    assert swept(server, ledger).dead == 2
    audit = audit_dead(server, ["orders"], Selection(), ledger)
    assert [(g.cause, g.error, g.jobs) for g in audit.ranked()] == [
        ("error", "refused #ip:#", 2),
        ("stalled", "stalled", 2),
        ("error", "HTTP 503", 1),
    ]
    assert (audit.dead, audit.looked, audit.unrecorded, audit.suspects) == (5, 5, 0, [])
    assert audit.ages["< 1 min"] == 5
    # A job that died of its handler is never "stalled", though it stalled before.
    server.write("HSET", q.keys.row(by_error[0]), "stalled", "1")
    for cause, wanted in (("error", by_error), ("stalled", by_stall)):
        got: list[str] = []
        audit_dead(server, ["orders"], Selection(causes=(cause,)), ledger, each=lambda j, _, got=got: got.append(j.job))
        assert sorted(got) == sorted(wanted)
    with pytest.raises(EmptySelectionError):
        audit_dead(server, ["orders"], Selection(causes=("flow",)), ledger)
    with pytest.raises(EmptySelectionError):
        audit_dead(server, ["orders"], Selection(older_ms=3_600_000), ledger)
    audit = audit_dead(server, ["orders"], Selection(newer_ms=3_600_000), ledger)
    assert (audit.dead, audit.unrecorded) == (5, 1)  # one died "again", which nobody saw before now
    assert audit_dead(server, ["nothing"], Selection(), ledger).dead == 0


def test_restart_suspects_and_bursts(durable: Valkey, ledger: Ledger) -> None:
    with connect(durable.url) as server:
        swept(server, ledger)  # the first contact
        q = Queue(server, "orders")
        before = stalled(q, 12)
        lapse(q, before, -600)
    durable.restart()
    with connect(durable.url) as server:
        q = Queue(server, "orders")
        while swept(server, ledger, restart="count").dead == 0:  # the first makes the census
            pass
        fresh = stalled(q, 1)
        assert swept(server, ledger, restart="count").dead == 1
        audit = audit_dead(server, ["orders"], Selection(), ledger)
        assert {one.job for one in audit.suspects} == set(before)
        assert all(one.sure and "of the life before the restart" in one.evidence for one in audit.suspects)
        [burst] = audit.bursts
        assert (burst.leases, burst.died, burst.across) == (12, 12, 12)
        assert set(burst.jobs) == set(before)
        only = audit_dead(server, ["orders"], Selection(), ledger, only_suspects=True)
        assert only.dead == 12
        assert fresh[0] not in {job for group in only.groups.values() for job in group.examples}
        page = check_page(dead_page(audit))
        assert "in flight across an interruption" in page.text
        assert burst.run in page.text


def test_a_worker_host_that_went_away_is_a_burst_and_no_suspect(server: Server, ledger: Ledger) -> None:
    q = Queue(server, "orders")
    gone = stalled(q, 15)
    report = swept(server, ledger)
    audit = audit_dead(server, ["orders"], Selection(), ledger)
    [burst] = audit.bursts
    assert (burst.run, burst.leases, burst.across) == (report.run, 15, 0)
    assert set(burst.jobs) == set(gone)
    assert "a worker host went away?" in burst.evidence
    assert audit.suspects == []
    assert audit_dead(server, ["orders"], Selection(), ledger, burst=16).bursts == []
    assert audit_dead(server, ["orders"], Selection(killed_by=report.run), ledger).dead == 15


def test_deaths_by_others_right_after_a_restart_are_suspected_weakly(durable: Valkey, ledger: Ledger) -> None:
    with connect(durable.url) as server:
        swept(server, ledger)
        taken = stalled(Queue(server, "orders"), 2)
    durable.restart()
    with connect(durable.url) as server:
        recover.sweep(Queue(server, "orders"))  # a worker's own sweep, before any pass of ours
        assert swept(server, ledger).found_dead == 2
        audit = audit_dead(server, ["orders"], Selection(), ledger)
        assert {one.job for one in audit.suspects} == set(taken)
        assert not any(one.sure for one in audit.suspects)
        assert "killed by no pass of ours" in audit.suspects[0].evidence


def test_what_vanished(ledger: Ledger) -> None:
    """A server that comes back without what it had: the ledger knows who is missing."""
    with Valkey() as forgetful:
        with connect(forgetful.url) as server:
            q = Queue(server, "orders")
            gone = stalled(q, 3)
            swept(server, ledger)
        forgetful.restart()
        with connect(forgetful.url) as server:
            swept(server, ledger)
            swept(server, ledger)
            audit = audit_dead(server, ["orders"], Selection(), ledger)
            assert {row["job"] for row in audit.vanished} == set(gone)
            assert audit.dead == 0
            assert "Vanished" in check_page(dead_page(audit)).text


def test_an_audit_while_the_dead_set_changes(server: Server, ledger: Ledger) -> None:
    """Jobs that leave or die while pages are read: none twice, and those that stay are all there."""
    q = Queue(server, "orders")
    stay = [failed(q, b"x") for _ in range(30)]
    leave = [failed(q, b"y") for _ in range(30)]
    seen: list[str] = []

    def each(job: object, _why: object) -> None:
        seen.append(job.job)  # type: ignore[attr-defined]  # a DeadJob
        if leave:
            jobs.requeue(q, leave.pop())
            failed(Queue(server, "other"), b"z")

    audit_dead(server, ["orders"], Selection(), ledger, each=each)
    assert len(seen) == len(set(seen))
    assert set(stay) <= set(seen)


def test_groups_are_bounded(server: Server) -> None:
    q = Queue(server, "orders")
    made = [ids.mint() for _ in range(MOST_GROUPS + 50)]
    for n, job in enumerate(made):
        word = "".join(chr(97 + int(d)) for d in str(n))
        server.write(
            "HSET", q.keys.row(job), "state", "dead", "attempts", 1, "payload", "x", "last_error", f"odd {word}"
        )
        server.write("ZADD", q.keys.dead, 0, job)
    audit = audit_dead(server, ["orders"], Selection())
    assert len(audit.groups) == MOST_GROUPS + 1
    assert sum(group.jobs for group in audit.groups.values()) == len(made)
    assert "different error texts" in audit.notes[-1]


BURY = """
for i = 2, #ARGV do
  redis.call('HSET', ARGV[1] .. 'job:' .. ARGV[i], 'attempts', '1', 'payload', 'x', 'state', 'dead',
    'last_error', string.rep('e', 300) .. ' ' .. i)
  redis.call('ZADD', KEYS[1], 0, ARGV[i])
end
"""


def bury(valkey: Valkey, q: Queue, count: int) -> None:
    """Many dead jobs, quickly."""
    with valkey.client() as client:
        for first in range(0, count, 5000):
            made = [ids.mint() for _ in range(min(5000, count - first))]
            client.eval(BURY, 1, q.keys.dead, q.keys.base, *made)


def test_memory_is_flat(server: Server, valkey: Valkey) -> None:
    """Many times the dead jobs, no more memory."""
    q = Queue(server, "orders")
    peaks = []
    for count in (2_500, 7_500):  # several pages each
        bury(valkey, q, count)
        audit_dead(server, ["orders"], Selection())
        tracemalloc.start()
        audit_dead(server, ["orders"], Selection())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.5


class Nowhere(io.TextIOBase):
    def write(self, text: str) -> int:
        return len(text)


@pytest.mark.parametrize("output", ["json", "jsonl", "csv"])
def test_lists_are_written_as_they_come(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Nowhere())
    tracemalloc.start()
    emit_rows(({"job": n, "error": "x" * 5_000} for n in range(3_000)), output, ("job", "error"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000 * 5_000 / 2  # some of it, until the collector comes round


def test_a_list_of_several_pages(server: Server, valkey: Valkey) -> None:
    bury(valkey, Queue(server, "orders"), 1_100)
    wanted = jobs_of(Queue(server, "orders"))

    def listed(output: str, *argv: str, code: int = 0) -> str:
        ran = emq("audit", "dead", "orders", "--list", "--url", valkey.url, "--output", output, *argv)
        assert ran.code == code, ran
        return ran.out

    text = listed("json")
    rows = json.loads(text)
    assert [row["job"] for row in rows] == wanted
    assert text == json.dumps(rows, indent=2) + "\n"
    lines = listed("table").splitlines()
    assert [line.split()[1] for line in lines if line.startswith("orders")] == wanted
    assert sum(line.startswith("queue") for line in lines) == 1
    for output in ("json", "jsonl", "csv", "table"):
        assert listed(output, "--cause", "flow", code=4) == ""  # refused before a word is written


@pytest.mark.soak
def test_a_million_dead(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    """A command's peak memory is that of a hundredth of it, and a bit for the server's pages."""
    q = Queue(server, "orders")
    told: list[tuple[float, int]] = []
    for count in (10_000, 990_000):
        bury(valkey, q, count)
        argv = ("audit", "dead", "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/none.db", "--output", "json")
        begun = time.monotonic()
        with subprocess.Popen([sys.executable, "-m", "emq_ops.cli.main", *argv], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            document = json.loads(process.stdout.read())
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        told.append((time.monotonic() - begun, usage.ru_maxrss // 1024))
        assert process.returncode == 0
    assert (document["dead"], len(document["groups"])) == (1_000_000, 1)
    print("seconds and MiB of 10,000 and of 1,000,000:", told)
    assert told[1][1] < told[0][1] + 16


def test_histogram_and_ages() -> None:
    histogram = Histogram()
    for n in range(5000):
        histogram.add(1_700_000_000_000 + n * 60_000, "error")
    histogram.add(1_600_000_000_000, "stalled")
    assert sum(sum(c.values()) for c in histogram.bins.values()) == 5001
    span = (max(histogram.bins) - min(histogram.bins)) // histogram.width_ms + 1
    assert span <= 200
    assert histogram.kinds() == ["error", "stalled"]
    assert [age_class(ms) for ms in (None, 0, 59_999, 60_000, 10**12)] == [
        "not recorded",
        "< 1 min",
        "< 1 min",
        "< 10 min",
        "older",
    ]
