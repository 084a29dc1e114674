"""``emq-ops worker enqueue``: a job as it was given, byte for byte, where it was asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import claims, jobs, reads
from tests.support.cli import emq
from tests.support.valkey import Valkey

TOOL = Path(sys.executable).with_name("emq-ops")
BYTES = bytes(range(256))


def payload_of(q: Queue, job: str) -> bytes:
    row = jobs.read_row(q, job)
    assert row is not None
    return row[b"payload"]


def test_it_prints_the_id_and_the_job_waits(valkey: Valkey, q: Queue) -> None:
    ran = emq("--url", valkey.url, "worker", "enqueue", "orders", "--new", '{"order": 7}')
    assert ran.code == 0
    job = ran.out.strip()
    assert ids.is_valid(job)
    claim = claims.claim(q, 60_000)
    assert claim is not None
    assert (claim.job, claim.payload) == (job, b'{"order": 7}')


def test_into_a_lane_for_later_under_a_given_id(valkey: Valkey, q: Queue) -> None:
    job, lane = ids.mint(), ids.mint("GRP")
    line = ["--url", valkey.url, "--output", "json", "worker", "enqueue", "orders", "", "--new"]
    ran = emq(*line, "--group", lane, "--delay", "10m", "--id", job)
    assert json.loads(ran.out) == {
        "job": job, "queue": "orders", "state": "scheduled", "group": lane, "delay_ms": 600_000, "bytes": 0,
        "added": True,
    }  # fmt: skip
    assert reads.job_state(q, job) is reads.JobState.SCHEDULED
    again = emq(*line, "--id", job)
    assert (again.code, again.out) == (1, "")
    assert f"{job}: there is a job of this id; nothing was changed" in again.err
    assert reads.counts(q).pending == 0
    now = json.loads(emq(*line, "--group", lane).out)
    claim = claims.claim_lane_batch(q, 60_000, 1)[0]
    assert (claim.job, claim.group, now["state"]) == (now["job"], lane, "pending")


def test_while_a_job_holds_the_key_its_id_is_printed_and_nothing_is_added(valkey: Valkey, q: Queue) -> None:
    line = ["--url", valkey.url, "worker", "enqueue", "orders", "x", "--new", "--dedup", "invoice 17"]
    job = emq(*line, "--ttl", "1h", "--release", "completed", "--at", "2090-01-01T00:00:00Z").out.strip()
    again = emq(*line)
    assert (again.code, again.out.strip()) == (0, job)
    assert f"{job} holds the key invoice 17; nothing was added" in again.err
    assert (reads.dedup_owner(q, "invoice 17"), reads.counts(q).schedule, reads.counts(q).pending) == (job, 1, 0)
    assert 3_500_000 < int(q.server.read("PTTL", q.keys.dedup("invoice 17"))) <= 3_600_000
    never = emq(*line, "--release", "none")
    assert (never.code, "never released" in never.err) == (4, True)
    assert "nothing is released at 'later'" in emq(*line, "--release", "later").err


def test_files_and_stdin_are_taken_byte_for_byte(valkey: Valkey, q: Queue, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(BYTES)
    line = ["--url", valkey.url, "worker", "enqueue", "orders", "--new"]
    assert payload_of(q, emq(*line, "--file", str(tmp_path / "body")).out.strip()) == BYTES
    piped = subprocess.run([str(TOOL), *line, "-"], input=BYTES, capture_output=True, check=True, timeout=60)
    assert payload_of(q, piped.stdout.decode().strip()) == BYTES
    odd = b"\xff\xfe{odd}"
    given = subprocess.run(
        [str(TOOL).encode(), *map(str.encode, line), odd], capture_output=True, check=True, timeout=60
    )
    assert payload_of(q, given.stdout.decode().strip()) == odd


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["orders"], "no payload"),
        (["orders", "x", "--file", "body"], "two payloads"),
        (["orders", "--file", "nowhere"], "nowhere: can't read: No such file"),
        (["orders", "x", "--id", "GRP0SSBKAh61tG"], "GRP"),
        (["orders", "x", "--id", "nonsense"], "nonsense"),
        (["orders", "x", "--group", "vip"], "vip"),
        (["orders", "x", "--delay", "10"], "--delay"),
        (["", "x"], "queue"),
    ],
)
def test_bad_input_puts_nothing_in(valkey: Valkey, q: Queue, words: list[str], said: str) -> None:
    ran = emq("--url", valkey.url, "worker", "enqueue", *words)
    assert (ran.code, ran.out) == (4, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert q.server.read("DBSIZE") == 0


def test_a_new_queue_is_made_and_its_name_looked_at(valkey: Valkey, q: Queue) -> None:
    assert emq("--url", valkey.url, "worker", "enqueue", "orders", "x", "--new").code == 0
    ran = emq("--url", valkey.url, "worker", "enqueue", "ordres", "x")
    assert ran.code == 4
    assert "no such queue 'ordres' (did you mean 'orders'?; --new for a queue of this name)" in ran.err
    assert q.server.queues() == ["orders"]
    assert emq("--url", valkey.url, "worker", "enqueue", "ordres", "x", "--new").code == 0
