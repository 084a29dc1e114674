"""The jobs of a trim as ``lua/lib/dead_trim.lua`` takes them, and what it says of those that stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emq_ops.ledger.victims import Victim
from emq_ops.passes.acts.flow_records import FlowRecords, digests_of
from emq_ops.passes.trim.archiver import ArchivedJob
from emq_ops.passes.trim.report import TrimReport
from emq_ops.protocol.server import Arg

_REASONS = {
    "held": "held: a worker's lock stands on it",
    "parent": "flow parent with open children",
    "damaged": "its row, logs or books, or its parent's, are of another type",
}


def call_tail(
    victims: Sequence[Victim], proven: Mapping[str, ArchivedJob] | None, books: Mapping[str, FlowRecords] | None
) -> list[Arg]:
    """The jobs as ``lua/lib/dead_trim.lua`` takes them; without `proven` there is no digest to compare, without `books`
    none of these."""
    flows = any(victim.flow for victim in victims)
    ends: list[list[Arg]] = [[digest] for digest in digests_of(victims, books)] if flows else [[] for _ in victims]
    shapes: dict[tuple[bytes, ...], int] = {}
    jobs: list[Arg] = []
    for victim, end in zip(victims, ends, strict=True):
        jobs += victim[:3]
        if proven is not None:
            archived = proven[victim.job]
            jobs += [shapes.setdefault(archived.names, len(shapes) + 1), archived.digest]
        jobs += end
    head: list[Arg] = ["flow" if flows else "flat", len(shapes)]
    for names in shapes:
        head += [len(names), *names]
    return head + jobs


def note_stay(report: TrimReport, stay: Sequence[bytes]) -> None:
    """Adds to a report those that a slice left where they are."""
    for job, word in zip(stay[::2], stay[1::2], strict=True):
        reason = word.decode("ascii")
        if reason in _REASONS:
            report.skip(job.decode("ascii"), _REASONS[reason])
        else:
            report.survived += 1  # gone, or dead again since it was listed
