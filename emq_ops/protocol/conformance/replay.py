"""One recorded transition: load what was given, make the public call, compare the reply and the whole keyspace."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emq_ops.protocol.conformance.calls import CALLS as BASIC
from emq_ops.protocol.conformance.keyspace import differences, dump_keyspace, expected_keyspace, load_keyspace
from emq_ops.protocol.conformance.minted import placeholders
from emq_ops.protocol.conformance.operations import CALLS as OPERATIONS
from emq_ops.protocol.conformance.values import TOLERANCE_MS, instant, raw
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server

Args = dict[str, Any]
FORMAT = 1
Calls = Mapping[str, Callable[[Queue, Args], Any]]
CALLS: Calls = {**BASIC, **OPERATIONS}
"""What an op of the recordings calls; those of workers stand above (`emq_ops.worker.conformance`)."""
_FREE_TEXTS = {"raise", "throw", "answer"}
"""Verdicts whose error is a text of the handler's language, not of the wire."""


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
    """`lines`: a small diff, empty where the server agrees; `got`: the reply."""

    vector: str
    lines: list[str] = field(default_factory=list)
    got: Any = None

    @property
    def agrees(self) -> bool:
        return not self.lines


def read_vectors(path: Path, calls: Calls = CALLS) -> list[Vector]:
    """The vectors of a file. Raises BadInputError that names the file and what is wrong with it, such as an op that
    `calls` lacks."""
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
        if vector.op not in calls:
            raise BadInputError(
                f"vector '{vector.name}': unknown op '{vector.op}'", where=where, fix=", ".join(sorted(calls))
            )
        vectors.append(vector)
    return vectors


def _wanted_reply(reply: Any) -> Any:
    if isinstance(reply, list):
        return [_wanted_reply(part) for part in reply]
    if isinstance(reply, dict) and reply.keys() == {"error"}:
        return reply
    if isinstance(reply, dict):
        return reply if reply.keys() == {"about"} else {raw(k): _wanted_reply(v) for k, v in reply.items()}
    return reply if reply is None or isinstance(reply, int) else raw(reply)


def _replies_agree(wanted: Any, got: Any) -> bool:
    """Whether a reply is what was recorded; ``about`` within the tolerance, a host's refusal in words of its own."""
    if isinstance(wanted, dict) and wanted.keys() == {"about"}:
        return isinstance(got, int) and abs(got - wanted["about"]) <= TOLERANCE_MS
    if isinstance(wanted, dict) and str(wanted.get("error", "")).startswith("host:"):
        return isinstance(got, dict) and got.keys() == {"error"}
    return bool(wanted == got)


def _plain(reply: Any) -> Any:
    if isinstance(reply, list):
        return [_plain(part) for part in reply]
    if isinstance(reply, dict):
        return {_plain(name): _plain(part) for name, part in reply.items()}
    return reply.decode("utf-8", "backslashreplace") if isinstance(reply, bytes) else reply


def _without_free_texts(vector: Vector, *keyspaces: dict[str, dict[str, Any]]) -> None:
    """Puts one text in the place of each error that is not of the wire."""
    verdicts = vector.args.get("verdicts")
    if not isinstance(verdicts, dict) or not _FREE_TEXTS & verdicts.keys():
        return
    for keyspace in keyspaces:
        for content in keyspace.values():
            if content.get("hash", {}).get(b"last_error"):
                content["hash"][b"last_error"] = b"..."


def replay(server: Server, vector: Vector, *, caller: Server | None = None, calls: Calls = CALLS) -> Replayed:
    """Replays one vector on a server that holds no keys; it holds the vector's afterwards.

    `caller`: the connection (of a user with fewer rights) that makes the call itself.
    """
    q = Queue(caller or server, vector.queue)
    load_keyspace(server, vector.given, server.now_ms(q.name))
    call_ms = server.now_ms(q.name)
    args = {name: instant(value, call_ms) for name, value in vector.args.items()}
    try:
        got = calls[vector.op](q, args)
    except EmqError as refusal:
        got = {"error": refusal.what}
    except (KeyError, TypeError, ValueError) as fault:
        raise BadInputError(f"vector '{vector.name}': bad args: {fault!r}") from fault
    wanted, found = _wanted_reply(vector.reply), dump_keyspace(server, expiry=True)
    named = placeholders([vector.given, vector.args, vector.reply, vector.then], [got, found])
    got, found = named(got), named(found)
    lines = [] if _replies_agree(wanted, got) else [f"- reply {_plain(wanted)}", f"+ reply {_plain(got)}"]
    expected = expected_keyspace(vector.then)
    _without_free_texts(vector, expected, found)
    lines += differences(expected, found, call_ms)
    return Replayed(vector.name, lines, got)


def replay_all(server: Server, vectors: list[Vector], calls: Calls = CALLS) -> Iterator[Replayed]:
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
            yield replay(server, vector, calls=calls)
        finally:
            for key in set(server.scan()):
                server.write("UNLINK", key)
