"""Reports of one pass or run as tables: what was done comes first, to how many and why; zeros are left out.

The other forms carry every field as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from emq_ops.cli.table import look
from emq_ops.passes.registry import PASSES, by_name
from emq_ops.policy.scalars import format_duration

SHOWN = 5
"""Ids that a table shows of each kind."""

WHY = {
    # of a sweep
    "recovered": "lapsed leases whose jobs wait again",
    "exempted": "of them not counted as a stall: an interruption, or a maintenance window",
    "forced": "of them counted all the same: exempt too often in a row",
    "dead": "dead-lettered: stalled too often",
    "ghosts": "ids without a job, taken out",
    "replayed": "slices of a pass that was cut off, recorded now",
    # of a trim
    "victims": "beyond what the policy keeps",
    "removed": "deleted",
    "archived": "newly in the archive",
    "waiting": "archived, and to go with the next segment",
    "survived": "no longer dead, or dead again, when their turn came",
    "malformed": "members of the dead set that are no job ids, left alone",
    "left": "still dead, as kept",
    # of both
    "found_dead": "deaths by others that the ledger learnt of",
    # of a fold
    "folded": "records newly in the local database",
    "shipped": "of them and of earlier ones, now in the store",
    "trimmed": "taken out of the stream",
    "unshipped": "still only in the local database",
    "lag_records": "in the stream and not archived yet",
}
_WHY_COUNTED = {name: why for one in PASSES for name, why in one.counted.items()}
_DONE = {
    "sweep": ("recovered", "exempted", "forced", "dead", "ghosts", "found_dead", "replayed"),
    "trim": ("victims", "removed", "skipped_count", "archived", "waiting", "survived", "found_dead", "malformed"),
    "fold": ("folded", "shipped", "trimmed", "reborn", "erased"),
}
_STANDING = {"sweep": (), "trim": ("left",), "fold": ("unshipped", "lag_records")}
"""Numbers of what is there, whatever was done."""
_FIRST = ("queue", "stream", "status", "stopped_by", "held_until_ms")
_IDS = ("recovered_jobs", "exempted_jobs", "dead_jobs", "victim_jobs", "removed_jobs", "promoted_jobs")
_NOTHING = {
    "sweep": "nothing to do: no lease has lapsed",
    "trim": "nothing to do: no job is beyond what the policy keeps",
    "fold": "nothing to do: nothing new, nothing beyond what the policy keeps",
}
_ZERO_SAYS = ("keep", "max_age_ms", "max_removals", "max_share", "max_exempt")
_ELSEWHERE = ("more", "notes", "skipped", "refused", "unstorable")
"""Shown on stderr, or with another field."""


def columns_of(kind: str) -> tuple[str, ...]:
    """The columns of a table of such reports, those of numbers left out where all are 0."""
    what = by_name(kind)
    done = _DONE.get(kind) or tuple(what.counted if what is not None else ())
    return (*_FIRST, *done, *_STANDING.get(kind, ()))


def format_report(kind: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a report of `kind`: fold, or the name of a pass."""
    what = by_name(kind)
    done = _DONE.get(kind) or tuple(what.counted if what is not None else ())
    standing = _STANDING.get(kind, ())
    known = (*_FIRST, *done, *standing, *_IDS, *_ELSEWHERE)
    table = _some(row, _FIRST)
    status = row.get("status", "done")
    if status in ("done", "dry") and not any(row.get(name) for name in (*done, "more", "refused", "unstorable")):
        table["status"] = f"{status}: {_NOTHING.get(kind, 'nothing to do')}"
    elif status == "dry":
        table["status"] = "dry: nothing was changed; this would be done"
    if row.get("more"):
        table["more"] = "yes: the time ran out; the next one goes on"
    table |= format_counts({name: row.get(name) for name in (*done, *standing)}, row.get("skipped") or ())
    for name in _IDS:
        # What recovered is in the queue again, and only counted; what died or goes is named.
        if name in ("recovered_jobs", "exempted_jobs") or (name == "victim_jobs" and row.get("removed_jobs")):
            continue
        if row.get(name):
            table[name] = format_ids(row[name])
    return table | _some(row, [name for name in row if name not in known])


def format_run(row: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a run of the ledger, with the jobs that it killed."""
    table = _some(row, ("id", "kind", "queue", "status", "error")) | format_counts(row["counts"])
    if row["killed"]:
        table["killed"] = format_ids(row["killed"])
    table |= _some(row, ("started_ms", "ended_ms", "took_ms", "trigger", "holder"))
    policy = {name: value for name, value in row["policy"].items() if not isinstance(value, Mapping)}
    table["policy"] = ", ".join(f"{name} {value}" for name, value in _some(policy, list(policy)).items())
    rest = [name for name in row if name not in ("counts", "killed", "policy")]
    return table | _some(row, rest)


def format_counts(numbers: Mapping[str, Any], skipped: Sequence[Mapping[str, str]] = ()) -> dict[str, str]:
    """Those that are not 0, aligned, each with what it means."""
    there = {name: str(number) for name, number in numbers.items() if number}
    width = max(map(len, there.values()), default=0)
    reasons = Counter(one["reason"] for one in skipped)
    why = (
        _WHY_COUNTED
        | WHY
        | {"skipped_count": "left as they are: " + ", ".join(f"{n} {reason}" for reason, n in reasons.items())}
    )
    return {name: f"{number:<{width}}  {why.get(name, '')}".rstrip(" :") for name, number in there.items()}


def format_ids(jobs: Sequence[str]) -> str:
    """The first of many ids."""
    shown = len(jobs) if look.verbose else SHOWN
    more = len(jobs) - shown
    return " ".join(jobs[:shown]) + (f" and {more} more (-v names them)" if more > 0 else "")


def _some(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The fields that say something, lists of few words as words."""
    found: dict[str, Any] = {}
    for name in names:
        value: Any = row.get(name)
        if value is None or (not value and name not in _ZERO_SAYS):
            continue
        if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
            value = ", ".join(value)
        if name == "max_age_ms":
            name, value = "max_age", format_duration(value)
        found[name] = value
    return found
