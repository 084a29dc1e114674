"""YAML from a live server: its queues, the settings that stand on it, its streams. Reads only."""

from __future__ import annotations

import io
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from emq_ops.deploy.document import Document
from emq_ops.deploy.imported import sections
from emq_ops.deploy.live_settings import read_settings
from emq_ops.policy.scalars import format_duration
from emq_ops.policy.words import nearest
from emq_ops.protocol import globs, ids
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.key_names import queue_of_key, stream_of_key
from emq_ops.protocol.keyspace import EVERY_KEY, keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import repeat

Json = dict[str, Any]
FLUSH, READS = 100, 5
"""Queues a flush, and reads of each (`_reads`)."""


def read_queues(
    server: Server, selectors: Sequence[str] = (), progress: Callable[[int, int], None] = lambda _done, _total: None
) -> tuple[dict[str, Json], list[str]]:
    """Queue -> its entry under ``queues``, and what could not be put into YAML, a line each.

    `selectors`: names or globs; none: every queue; `progress`: called with how many queues of how many were read.
    Raises BadInputError for one that takes no queue.
    """
    keys: dict[str, list[str]] = {}
    for key in server.scan(EVERY_KEY):
        queue = queue_of_key(key)
        if queue is None:
            continue
        streams = keys.setdefault(queue, [])
        name = stream_of_key(key)
        if name is not None and name not in streams:
            streams.append(name)
    live = names = sorted(keys)
    if selectors:
        names = []
        for selector in selectors:
            found = globs.select(selector, live)
            if not found:
                near = nearest(selector, live)
                known = f"one of {', '.join(live[:10])}{' ...' if len(live) > 10 else ''}" if live else "it has none"
                known = f"did you mean '{near}'?" if near else known
                raise BadInputError(f"'{selector}' takes no queue of the server", fix=known)
            names += [name for name in found if name not in names]
    left_out: list[str] = []
    entries: dict[str, Json] = {}
    for first in range(0, len(names), FLUSH):
        some = names[first : first + FLUSH]
        replies = server.read_many([command for name in some for command in _reads(name)])
        for name, read in zip(some, zip(*[iter(replies)] * READS, strict=True), strict=True):
            entry: Json = {"streams": {stream: {} for stream in sorted(keys[name])}} if keys[name] else {}
            if settings := _settings(server, name, read, left_out):
                entry["settings"] = settings
            entries[name] = entry
        progress(first + len(some), len(names))
    return entries, left_out


def _reads(name: str) -> list[tuple[str, ...]]:
    """What is read of each queue."""
    keys = keys_of(name)
    return [
        ("HMGET", keys.meta, "paused", "concurrency", "max"),
        ("HGETALL", keys.glimit),
        ("HGETALL", keys.gweight),
        ("SMEMBERS", keys.paused),
        ("EXISTS", keys.repeat, keys.calendar),
    ]


def _settings(server: Server, name: str, read: Sequence[Any], left_out: list[str]) -> Json:
    """`read`: the replies to `_reads`."""
    meta, limits, weights, paused, repeats = read
    out: Json = {}
    if meta[0] is not None:
        out["paused"] = True
    for field, value in (("concurrency", meta[1]), ("rate", meta[2])):
        if value is None:
            continue
        if value.isdigit() and len(value) <= 18:
            if int(value) > 0:
                out[field] = int(value)
        else:
            left_out.append(f"{name}: {field} is {value[:40]!r}, not a whole number")
    lanes: dict[str, Json] = {}
    for field, flat in (("limit", limits), ("weight", weights)):
        for lane, value in zip(flat[::2], flat[1::2], strict=True):
            if _is_lane(lane, name, left_out) and value.isdigit() and int(value) > 0:
                lanes.setdefault(lane.decode(), {})[field] = int(value)
    for lane in sorted(paused):
        if _is_lane(lane, name, left_out):
            lanes.setdefault(lane.decode(), {})["paused"] = True
    if lanes:
        out["lanes"] = dict(sorted(lanes.items()))
    repeatables = {}
    for one in repeat.repeatables(Queue(server, name)) if repeats else ():
        try:
            one.name.encode("utf-8")  # surrogates stand for bytes that are no text
            template = one.template.decode("utf-8")
        except UnicodeEncodeError:
            left_out.append(f"{name}: the name of repeatable {one.name!r} is not UTF-8 text")
            continue
        except UnicodeDecodeError:
            left_out.append(f"{name}: the template of repeatable '{one.name}' is not UTF-8 text")
            continue
        lane = {} if one.lane is None else {"lane": one.lane}
        if one.cron:
            repeatables[one.name] = {"cron": one.cron, "zone": one.zone, "template": _quoted(template), **lane}
        elif one.every_ms > 0:
            repeatables[one.name] = {"every": format_duration(one.every_ms), "template": _quoted(template), **lane}
        else:
            left_out.append(f"{name}: repeatable '{one.name}' has no interval")
    if repeatables:
        out["repeatables"] = repeatables
    return out


def _is_lane(lane: bytes, queue: str, left_out: list[str]) -> bool:
    if ids.is_valid(lane) and lane.startswith(b"GRP"):
        return True
    left_out.append(f"{queue}: {lane[:20]!r} is no lane's id")
    return False


def _quoted(text: str) -> str:
    # `$${` so that a template that holds `${` is not taken for a reference.
    return str_quoted(text.replace("${", "$${"))


def str_quoted(text: str) -> str:
    """`text` that is written in double quotes."""
    quoted: str = DoubleQuotedScalarString(text)
    return quoted


def managers(server: Server, queues: Iterable[str], ours: Container[str]) -> dict[str, list[str]]:
    """State -> those of the queues that it manages or leads, for states that are not `ours`."""
    found: dict[str, list[str]] = {}
    for queue, facts in read_settings(server, {queue: [] for queue in queues}).items():
        said = {facts.note.state if facts.note else "", facts.lease.state if facts.lease else ""}
        for state in sorted(said - {""}):
            if state not in ours:
                found.setdefault(state, []).append(queue)
    return found


HEAD = """\
# Written by `emq-ops import`. Only settings are taken over; say under `defaults` what should run:
#   stalled: {every: 30s}
#   dead: {every: 10m, keep: 10000}
"""


ARCHIVE = """\
# No archive is known. If there is one already, name it here: archive: {remote: {url: "${EMQ_OPS_BUCKET}"}}
"""


def as_yaml(entries: Mapping[str, Json], url: str | None, places: Json | None = None) -> str:
    """A config file that wants what is live. `url`: of the server, without secrets; None leaves it out. `places`: the
    sections that say where server, state and archive are, with references where there are secrets."""
    document: Json = {name: section for name, section in (places or {}).items() if section}
    if url is not None:
        document.setdefault("server", {})["url"] = url
    document["queues"] = {
        globs.escaped(name): {key: value for key, value in entry.items() if key != "streams"}
        for name, entry in entries.items()
    }
    return _dumped(document, entries, HEAD)


def revision_yaml(document: Document, number: int, entries: Mapping[str, Json], places: Json, imported: Json) -> str:
    """As `as_yaml`, where a state manages queues of the server: `imported` is the config of revision `number`, which
    `document` is of, with what is live (`over_revision`)."""
    known = {name: (entry.get("streams") or {}) for name, entry in document.queues.items()}
    beside = {
        name: {"streams": [one for one in entry.get("streams") or {} if one not in known.get(name, {})]}
        for name, entry in entries.items()
    }
    head = f"# Written by `emq-ops import`: revision {number}, with the settings that are on the server.\n"
    return _dumped(sections(document, imported, places), beside, head)


def _dumped(document: Json, entries: Mapping[str, Json], head: str) -> str:
    """`document` as YAML, below what is not in it."""
    document = {**document, "queues": {_key(name): entry for name, entry in document["queues"].items()}}
    streams = [
        f"#   {one_line(name)}: {', '.join(map(one_line, entry['streams']))}\n"
        for name, entry in entries.items()
        if entry.get("streams")
    ]
    yaml = YAML()
    yaml.width = 10_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    yaml.dump(document, out)
    archive = ARCHIVE if document.get("archive") is None else ""
    there = "# Streams that are there; `streams: {NAME: {}}` in a queue's entry archives one:\n" if streams else ""
    return head + archive + there + "".join(streams) + out.getvalue()


def _key(name: str) -> str:
    plain = name.replace("-", "").replace("_", "")
    return name if plain.isalnum() and plain.isascii() and not name[0].isdigit() else str_quoted(name)
