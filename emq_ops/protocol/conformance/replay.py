"""One recorded transition: load what was given, make the public call, compare the reply and the whole keyspace."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emq_ops.protocol.conformance.keyspace import (
    differences,
    dump_keyspace,
    expected_keyspace,
    instant,
    load_keyspace,
    raw,
)
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, enqueue, jobs, leases, reads, recover, settle

Args = dict[str, Any]
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Vector:
    """A recorded transition and where it was read from."""

    name: str
    op: str
    queue: str
    given: dict[str, Any]
    args: Args
    reply: Any
    then: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Replayed:
    """`lines`: a small diff, empty where the server agrees."""

    vector: str
    lines: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        return not self.lines


def read_vectors(path: Path) -> list[Vector]:
    """The vectors of a file. Raises BadInputError that names the file and what is wrong with it."""
    where = str(path)
    try:
        document = json.loads(path.read_bytes())
    except OSError as fault:
        raise BadInputError(f"can't be read: {fault.strerror}", where=where, fix="check the path") from fault
    except ValueError as fault:
        raise BadInputError(f"is not JSON: {fault}", where=where, fix="give a file of recorded transitions") from fault
    if not isinstance(document, dict) or document.get("format") != FORMAT or "vectors" not in document:
        raise BadInputError("is no file of recorded transitions of format 1", where=where)
    vectors = []
    for place, entry in enumerate(document["vectors"]):
        try:
            vector = Vector(**{name: entry[name] for name in Vector.__dataclass_fields__})
        except (KeyError, TypeError):
            raise BadInputError(
                f"vector {place} lacks a field", where=where, fix="name, op, queue, given, args, reply, then"
            ) from None
        if vector.op not in CALLS:
            raise BadInputError(
                f"vector '{vector.name}': unknown op '{vector.op}'", where=where, fix=", ".join(sorted(CALLS))
            )
        vectors.append(vector)
    return vectors


def _ids(found: list[str]) -> list[bytes]:
    return [i.encode("ascii") for i in found]


def _claimed(claim: claims.Claim | None) -> list[Any]:
    if claim is None:
        return []
    reply: list[Any] = [claim.job.encode("ascii"), claim.payload, claim.token]
    return reply if claim.group is None else [*reply, claim.group.encode("ascii")]


def _row(done: bool) -> int:
    return 1 if done else -1


def _verb(call: Callable[[Queue, Args], object]) -> Callable[[Queue, Args], int]:
    """A verb that returns nothing: the recordings write 1."""

    def answer(q: Queue, args: Args) -> int:
        call(q, args)
        return 1

    return answer


def _swept(swept: recover.Swept) -> list[list[bytes]]:
    return [_ids(swept.recovered), _ids(swept.dead)]


def _counts(c: reads.Counts) -> list[int]:
    return [c.pending, c.active, c.schedule, c.dead, c.completed, c.failed]


def _add_log(q: Queue, a: Args) -> int:
    lines = jobs.add_log(q, a["id"], raw(a["line"]), keep=a["keep"])
    return -1 if lines is None else lines


CALLS: dict[str, Callable[[Queue, Args], Any]] = {
    "enqueue": lambda q, a: int(enqueue.enqueue(q, a["id"], raw(a["payload"]))),
    "enqueue_lane": lambda q, a: int(enqueue.enqueue(q, a["id"], raw(a["payload"]), group=a["group"])),
    "schedule_in": lambda q, a: int(
        enqueue.schedule_in(q, a["id"], raw(a["payload"]), a["delay_ms"], group=a.get("group"))
    ),
    "schedule_at": lambda q, a: int(
        enqueue.schedule_at(q, a["id"], raw(a["payload"]), a["run_at"], group=a.get("group"))
    ),
    "claim": lambda q, a: _claimed(claims.claim(q, a["lease_ms"], gate=False)),
    "claim_lane": lambda q, a: _claimed(claims.claim_lane(q, a["lease_ms"], gate=False)),
    "complete": lambda q, a: int(settle.complete(q, a["id"], a["token"])),
    "retry": lambda q, a: settle.retry(
        q, a["id"], a["token"], settle.Failure(raw(a["error"]), delay_ms=a["delay_ms"], max_attempts=a["max_attempts"])
    ).value.encode("ascii"),
    "promote": lambda q, a: recover.promote(q, a["limit"]),
    "reap": lambda q, _: recover.reap(q),
    "extend_lock": lambda q, a: int(leases.extend(q, a["id"], a["token"], a["lease_ms"])),
    "extend_locks": lambda q, a: _ids(leases.extend_many(q, [(i, t) for i, t in a["held"]], a["lease_ms"])),
    "sweep_stalled": lambda q, a: _swept(recover.sweep(q, a["max_stalled"], a["limit"])),
    "remove_job": lambda q, a: _row(jobs.remove(q, a["id"])),
    "reprocess_job": lambda q, a: _row(jobs.reprocess(q, a["id"])),
    "update_data": lambda q, a: _row(jobs.update_payload(q, a["id"], raw(a["payload"]))),
    "update_progress": lambda q, a: _row(jobs.update_progress(q, a["id"], raw(a["progress"]))),
    "add_log": _add_log,
    "pause_queue": _verb(lambda q, _: control.pause_queue(q)),
    "resume_queue": _verb(lambda q, _: control.resume_queue(q)),
    "pause_lane": _verb(lambda q, a: control.pause_lane(q, a["group"])),
    "resume_lane": _verb(lambda q, a: control.resume_lane(q, a["group"])),
    "limit_lane": _verb(lambda q, a: control.limit_lane(q, a["group"], a["limit"])),
    "drain": lambda q, a: control.drain(q, include_schedule=a["include_schedule"]),
    "drain_lane": lambda q, a: control.drain_lane(q, a["group"]),
    "obliterate": lambda q, a: int(not control.obliterate(q, force=a["force"], budget=a["budget"])),
    "job_state": lambda q, a: reads.job_state(q, a["id"]).value.encode("ascii"),
    "counts": lambda q, _: _counts(reads.counts(q)),
}


def _wanted_reply(reply: Any) -> Any:
    if isinstance(reply, list):
        return [_wanted_reply(part) for part in reply]
    if isinstance(reply, dict) and "error" in reply:
        return {"error": reply["error"]}
    return reply if isinstance(reply, int) else raw(reply)


def _plain(reply: Any) -> Any:
    if isinstance(reply, list):
        return [_plain(part) for part in reply]
    return reply.decode("utf-8", "backslashreplace") if isinstance(reply, bytes) else reply


def replay(server: Server, vector: Vector, *, caller: Server | None = None) -> Replayed:
    """Replays one vector on a server that holds no keys; it holds the vector's afterwards.

    `caller`: the connection (of a user with fewer rights) that makes the call itself.
    """
    q = Queue(caller or server, vector.queue)
    load_keyspace(server, vector.given, server.now_ms(q.name))
    call_ms = server.now_ms(q.name)
    args = {name: instant(value, call_ms) for name, value in vector.args.items()}
    try:
        got = CALLS[vector.op](q, args)
    except EmqError as refusal:
        got = {"error": refusal.what}
    except (KeyError, TypeError, ValueError) as fault:
        raise BadInputError(f"vector '{vector.name}': bad args: {fault!r}") from fault
    wanted = _wanted_reply(vector.reply)
    lines = [] if got == wanted else [f"- reply {_plain(wanted)}", f"+ reply {_plain(got)}"]
    lines += differences(expected_keyspace(vector.then), dump_keyspace(server), call_ms)
    return Replayed(vector.name, lines)


def replay_all(server: Server, vectors: list[Vector]) -> Iterator[Replayed]:
    """Replays vectors one after another, removing after each just the keys that stand there then.

    Raises BadInputError for a server that holds keys: what it holds would be taken for the transition's doing.
    """
    for key in server.scan(count=10):
        raise BadInputError(
            f"the server holds keys, such as {key[:60].decode('utf-8', 'backslashreplace')}",
            where=server.where,
            fix="give an empty server of its own",
        )
    for vector in vectors:
        try:
            yield replay(server, vector)
        finally:
            for key in set(server.scan()):
                server.write("UNLINK", key)
