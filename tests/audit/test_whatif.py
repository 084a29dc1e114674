"""what-if: at the threshold in force exactly those who died; at another exactly those that a real re-run kills."""

from __future__ import annotations

import csv
import io
import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emq_ops.audit.whatif import ReplayedJob, replay, what_if
from emq_ops.ledger import deaths
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.stalls import DEAD, EXEMPT, RECOVERED, Stall
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, jobs, recover, settle
from tests.audit.working import LONG_MS, lapse, put, stalled, swept
from tests.support.cli import Ran, emq

History = list[tuple[int, str]]
OPS = ["stall", "stall", "stall", "exempt", "requeue", "reprocess"]
HISTORY = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(OPS)))


def play(history: History, max_stalled: int) -> tuple[dict[int, int], History, dict[int, list[Stall]]]:
    """The wire's rules in memory: how often each job died, what had an effect, and the stalls as a ledger has them."""
    died, effective, stalls = {}, [], {}
    state = {job: {"dead": False, "count": 0, "attempts": 0} for job in range(3)}
    for job, op in history:
        row = state[job]
        if op in ("stall", "exempt") and not row["dead"]:
            row["attempts"] += 1
            outcome = EXEMPT
            if op == "stall":
                row["count"] += 1
                row["dead"] = row["count"] >= max_stalled
                outcome = DEAD if row["dead"] else RECOVERED
                died[job] = died.get(job, 0) + row["dead"]
            known = Stall("J", int(row["attempts"]), 0, 0, outcome, int(row["count"]), "", None, "R")
            stalls.setdefault(job, []).append(known)
        elif op in ("requeue", "reprocess") and row["dead"]:
            row["dead"] = False
            row["count"] = 0 if op == "requeue" else row["count"]
        else:
            continue
        effective.append((job, op))
    return {job: n for job, n in died.items() if n}, effective, stalls


@given(HISTORY, st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_the_replay_kills_whom_a_rerun_kills(history: History, in_force: int, other: int) -> None:
    died, effective, stalls = play(history, in_force)
    assert {job: n for job, s in stalls.items() if (n := replay(s, in_force))} == died
    again, _, _ = play(effective, other)
    assert {job: n for job, s in stalls.items() if (n := replay(s, other))} == again


_runs = itertools.count()


def really(server: Server, ledger: Ledger, history: History, max_stalled: int) -> tuple[list[str], set[int], History]:
    """The same with real claims, real sweeps and a real ledger; a queue a job."""
    run = next(_runs)
    queues = [Queue(server, f"q{run}-{n}") for n in range(2)]
    names = [put(q)[0] for q in queues]
    effective = []
    for number, op in history:
        q, job = queues[number], names[number]
        if op == "stall":
            if claims.claim(q, LONG_MS) is None:
                continue
            lapse(q, [job])
            swept(server, ledger, q.name, max_stalled=max_stalled)
        elif reads_dead(q, job):
            jobs.requeue(q, job) if op == "requeue" else jobs.reprocess(q, job)
        else:
            continue
        effective.append((number, op))
    died = {n for n, q in enumerate(queues) if list(deaths.iterate(ledger, queue=q.name, with_rows=False))}
    return [q.name for q in queues], died, effective


def reads_dead(q: Queue, job: str) -> bool:
    return q.server.read("ZSCORE", q.keys.dead, job) is not None


def would_die(ledger: Ledger, queues: list[str], threshold: int) -> set[int]:
    fates: list[ReplayedJob] = []
    what_if(ledger, threshold, queues, each=fates.append)
    return {queues.index(fate.queue) for fate in fates if fate.would_die}


@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["stall", "stall", "requeue", "reprocess"])), max_size=6),
    st.integers(1, 3),
    st.integers(1, 3),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_really(server: Server, ledger: Ledger, history: History, in_force: int, other: int) -> None:
    queues, died, effective = really(server, ledger, history, in_force)
    assert would_die(ledger, queues, in_force) == died
    assert really(server, ledger, effective, other)[1] == would_die(ledger, queues, other)


def test_what_the_ledger_says(server: Server, ledger: Ledger) -> None:
    q = Queue(server, "orders")
    once = stalled(q, 2)
    assert swept(server, ledger, max_stalled=2).recovered == 2
    again = [claim.job for claim in claims.claim_batch(q, LONG_MS, 1)]
    lapse(q, again)
    assert swept(server, ledger, max_stalled=2).dead == 1
    [fresh] = [job for job in stalled(q, 2) if job not in once]
    recover.sweep(q)  # by others, at the threshold 1
    swept(server, ledger, max_stalled=2)
    now = what_if(ledger, 2, ["orders"])
    assert (now.died, now.would_die, now.in_force, now.by_others) == (3, 2, {"2": 3}, 2)
    assert [(f.job, f.verdict) for f in now.others] == [(fresh, "would have lived")]
    assert {(f.job, f.verdict) for f in now.same} == {(job, "same") for job in once}
    lower = what_if(ledger, 1, ["orders"])
    assert (lower.died, lower.would_die, lower.differing, len(lower.fates)) == (3, 3, 0, 3)
    higher = what_if(ledger, 3, ["orders"])
    assert (higher.died, higher.would_die) == (3, 0)
    assert {f.verdict for f in higher.fates} == {"would have lived"}
    assert "nobody can know" in higher.notes[0]
    with pytest.raises(BadInputError):
        what_if(ledger, 0, ["orders"])
    assert what_if(ledger, 1, ["nothing"]).notes == ["the ledger has no stall of these queues"]


def test_every_form_names_who_died_and_who_would_have(
    server: Server, ledger: Ledger, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    q = Queue(server, "orders")
    twice = stalled(q, 3)
    swept(server, ledger, max_stalled=2)
    lapse(q, [claim.job for claim in claims.claim_batch(q, LONG_MS, 3)])
    swept(server, ledger, max_stalled=2)
    once = stalled(q, 2)
    swept(server, ledger, max_stalled=2)

    def told(threshold: int, output: str) -> Ran:
        ran = emq("audit", "what-if", "--max-stalled", str(threshold), "--state", state, "--output", output)
        assert ran.code == 0, ran
        return ran

    dying = {2: sorted(twice), 1: sorted(twice + once), 3: []}
    for threshold, wanted in dying.items():
        document = json.loads(told(threshold, "json").out)
        assert sorted(fate["job"] for fate in document["fates"] if fate["would_die"]) == wanted
        assert sorted(fate["job"] for fate in document["fates"] if fate["died"]) == sorted(twice)
        assert document["would_die"] == len(wanted)
        lines = [json.loads(line) for line in told(threshold, "jsonl").out.splitlines()]
        assert sorted(lines, key=str) == sorted(document["fates"], key=str)
        rows = list(csv.DictReader(io.StringIO(told(threshold, "csv").out)))
        assert sorted(row["job"] for row in rows if row["would_die"] != "0") == wanted
        assert all(job in told(threshold, "table").out for job in {*wanted, *twice})
    monkeypatch.setattr("emq_ops.audit.whatif.NAMED", 1)
    document = json.loads(told(1, "json").out)
    assert [fate["verdict"] for fate in document["fates"]] == ["would have died", "same"]
    assert document["notes"] == ["3 more are not named here; --output jsonl names them all"]
    assert len(told(1, "jsonl").out.splitlines()) == 5


def test_a_ledger_with_a_gap() -> None:
    """The first stalls are not known one by one; the count says how many there were."""
    late = [Stall("J", 5, 0, 0, DEAD, 3, "", None, "R")]
    assert replay(late, 3) == 1
    assert replay(late, 2) == 1
    assert replay(late, 4) == 0
    assert replay([], 1) == 0


def test_a_row_made_anew_begins_at_nothing() -> None:
    first = Stall("J", 3, 0, 0, RECOVERED, 1, "", None, "R")
    second = Stall("J", 1, 0, 0, RECOVERED, 1, "", None, "R")
    assert replay([first, second], 2) == 0
    assert replay([first, second], 1) == 1


def test_settled_jobs_leave_no_trace(server: Server, ledger: Ledger) -> None:
    q = Queue(server, "orders")
    put(q)
    claim = claims.claim(q, LONG_MS)
    assert claim is not None
    settle.complete(q, claim.job, claim.token)
    swept(server, ledger)
    assert what_if(ledger, 1, ["orders"]).jobs == 0
