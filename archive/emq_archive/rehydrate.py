"""Archived dead jobs as jobs again: what a trim removed can be undone."""

from __future__ import annotations

from typing import Literal

from emq_archive.model import Record
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import job_id
from emq_ops.protocol.queue import Queue

Goal = Literal["pending", "dead"]
ROW = b"row:"


def rehydrate(queue: Queue, record: Record, goal: Goal = "pending") -> bool:
    """Brings the job of an archived dead record back: ``dead`` as it was, or ``pending`` (in its lane, where it had
    one) to run again with its attempts kept and its stall count and last error cleared. False where the job is there.

    Raises BadInputError for a record that holds no row (or whose payload was redacted away), StateError where a set
    holds the id without a row, DamagedError.
    """
    if record.kind != "dead" or record.job is None:
        raise BadInputError("this record holds no job", where=record.stream_id, fix="rehydrate from the stream 'dead'")
    job = job_id(record.job)
    row = [text for name, value in record.fields if name.startswith(ROW) for text in (name[len(ROW) :], value)]
    if b"payload" not in row[::2]:
        raise BadInputError(
            f"the payload of {job} was not kept", where=record.stream_id, fix="see `redact` in the policy"
        )
    logs = [value for name, value in record.fields if name == b"log"]
    keys = [queue.keys.row(job), queue.keys.book(job, "logs")]
    return bool(queue.run("rehydrate", keys, queue.keys.base, job, goal, len(row), *row, *logs))
