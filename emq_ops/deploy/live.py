"""The facts that a plan rests on, read from the server and the ledger in a few flushes, whatever the number of queues.

Only what a plan needs is read: the settings that somebody manages, who owns each queue, and the dead sets and streams
of policies that change. Nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from emq_ops.config.policies import dead_policy
from emq_ops.deploy import loss, settings
from emq_ops.deploy.document import Document
from emq_ops.deploy.model import DeadFacts, Interrupted, LiveQueue, LiveServer, StreamBacklog
from emq_ops.ledger.alerts import competing
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.lease.owner import foreign_queues, lease_info_of
from emq_ops.passes.trim.predict import predict_trim
from emq_ops.policy.models import DeadPolicy
from emq_ops.policy.scalars import format_duration
from emq_ops.protocol.errors import DamagedError, EmqError, ServerError
from emq_ops.protocol.ids import floor_stream_id, parse
from emq_ops.protocol.keyspace import Keys, keys_of
from emq_ops.protocol.server import Arg, Server

Env = Mapping[str, str]
Json = dict[str, Any]
Command = Sequence[Arg]
Left = Mapping[tuple[str, str], tuple[Any, Any]]

COUNTED = 1000
"""Records of a stream are counted up to this many where no command tells their number."""


def read_live(
    server: Server,
    ledger: Ledger | None,
    desired: Document,
    applied: Document | None,
    env: Env,
    interrupted: Interrupted | None = None,
    as_of: Mapping[str, int] | None = None,
) -> LiveServer:
    """Everything that `planner.plan` wants to know. `as_of`: queue -> server time (ms) at which an earlier plan looked
    at its dead set: ages are told as of then."""
    desired, before = desired.completed, (applied or Document.empty()).completed
    live = LiveServer(interrupted=interrupted)
    left = {queue for queue, _ in live.left}
    flat = settings.Flattened()
    wants = [
        _Want(queue, desired, before, live.left, flat) for queue in sorted({*desired.queues, *before.queues, *left})
    ]
    _read_settings(server, wants, live)
    if ledger is not None:
        leases = {queue: facts.lease for queue, facts in live.queues.items() if facts.lease is not None}
        for queue, fault in foreign_queues(ledger, leases).items():
            live.queues[queue].foreign = fault.what
    sound = [want for want in wants if live.queues[want.queue].damage is None]
    _read_streams(server, sound, live, env)
    _read_dead(server, ledger, sound, live, env, as_of or {})
    _read_left(server, sound, live)
    if ledger is not None:
        for rival in competing(ledger):
            if rival.queue in live.queues:
                live.queues[rival.queue].rivals[rival.kind] = f"seen {rival.times} times"
    return live


class _Want:
    """What must be read of one queue."""

    def __init__(self, queue: str, desired: Document, before: Document, left: Left, flat: settings.Flattened) -> None:
        self.queue = queue
        self.keys = keys_of(queue)
        after, old = desired.queues.get(queue) or {}, before.queues.get(queue) or {}
        self.paths = list(flat.of(after.get("settings")))
        self.paths += [path for path in flat.of(old.get("settings")) if path not in self.paths]
        self.paths += [path for name, path in left if name == queue and path not in self.paths]
        self.dead: Json | None = None
        self.streams: dict[str, Json] = {}
        self.left: dict[str, Command] = {}
        if after == old:
            return
        for section, key in (("stalled", self.keys.active), ("dead", self.keys.dead)):
            if old.get(section) and not after.get(section):
                self.left[section] = ("ZCARD", key)
        for name in (old.get("streams") or {}).keys() - (after.get("streams") or {}).keys():
            self.left[f"streams/{name}"] = ("XLEN", self.keys.stream(name))
        dead = after.get("dead")
        bounds = ("keep", "max_age", "age_by")
        if dead and any(dead.get(b) != (old.get("dead") or {}).get(b) for b in bounds):
            self.dead = dead
        was = old.get("streams") or {}
        self.streams = {n: f for n, f in (after.get("streams") or {}).items() if f != was.get(n)}


def _read_settings(server: Server, wants: Sequence[_Want], live: LiveServer) -> None:
    commands: list[Command] = []
    spans: list[tuple[_Want, int]] = []
    for want in wants:
        mine = _setting_commands(want.keys, want.paths)
        spans.append((want, len(mine)))
        commands += mine
    try:
        replies = server.read_many(commands)
    except (ServerError, DamagedError):
        _read_one_by_one(server, wants, live)
        return
    at = 0
    for want, count in spans:
        live.queues[want.queue] = _settings_of(want, replies[at : at + count])
        at += count


def _read_one_by_one(server: Server, wants: Sequence[_Want], live: LiveServer) -> None:
    """Slower, to tell which queue has a key of another kind than it should."""
    for want in wants:
        try:
            live.queues[want.queue] = _settings_of(want, server.read_many(_setting_commands(want.keys, want.paths)))
        except (ServerError, DamagedError) as fault:
            if isinstance(fault, ServerError) and fault.code != "WRONGTYPE":
                raise
            live.queues[want.queue] = LiveQueue(damage=f"{fault.what}; `emq-ops doctor` explains")


def read_setting(server: Server, queue: str, path: str) -> Any:
    """One live setting as it is now, in the form that plans compare."""
    commands = _setting_commands(keys_of(queue), [path])
    return _value(path, server.read(*commands[1]), queue)


_META = {"paused": "paused", "concurrency": "concurrency", "rate": "max"}


def _setting_commands(keys: Keys, paths: Iterable[str]) -> list[Command]:
    commands: list[Command] = [("HGETALL", keys.lease)]
    for path in paths:
        head, _, rest = path.partition("/")
        if head in _META:
            commands.append(("HGET", keys.meta, _META[head]))
        elif head == "lanes":
            lane, _, what = rest.partition("/")
            if what == "paused":
                commands.append(("SISMEMBER", keys.paused, lane))
            else:
                commands.append(("HGET", keys.glimit if what == "limit" else keys.gweight, lane))
        else:
            commands.append(("HMGET", keys.repeatable(rest), "every_ms", "template"))
    return commands


def _settings_of(want: _Want, replies: Sequence[Any]) -> LiveQueue:
    found = LiveQueue(lease=lease_info_of(replies[0], 0) if replies[0] else None)
    for path, reply in zip(want.paths, replies[1:], strict=True):
        found.settings[path] = _value(path, reply, want.queue)
    return found


def _value(path: str, reply: Any, queue: str) -> Any:
    if path.startswith("repeatables/"):
        every, template = reply
        if every is None:
            return None
        if not every.isdigit():
            raise DamagedError(f"the repeatable has every_ms {every[:40]!r}", where=queue)
        return {"every": format_duration(int(every)), "template": text_of(template or b"")}
    if path == "paused":
        return reply is not None
    if path.endswith("/paused"):
        return bool(reply)
    if reply is None:
        return None
    if not reply.isdigit():
        raise DamagedError(f"{path} is {reply[:40]!r}, not a whole number", where=queue)
    return int(reply) or None


def text_of(raw: bytes) -> str:
    """A template as text; bytes that are no UTF-8 can be shown and compared, not written in YAML."""
    return raw.decode("utf-8", "backslashreplace")


def _read_streams(server: Server, wants: Sequence[_Want], live: LiveServer, env: Env) -> None:
    todo = [(want, name, fields) for want in wants for name, fields in want.streams.items()]
    if not todo:
        return
    commands: list[Command] = []
    for want, name, _ in todo:
        commands += [("XLEN", want.keys.stream(name)), ("GET", want.keys.watermark(name))]
    replies = _tolerant(server, commands)
    for (want, name, fields), length, mark in zip(todo, replies[::2], replies[1::2], strict=True):
        if isinstance(length, EmqError):
            live.queues[want.queue].damage = f"stream {name}: {length.what}"
            continue
        live.queues[want.queue].streams[name] = _stream(server, want, name, fields, length, mark, env)


def _stream(server: Server, want: _Want, name: str, fields: Json, length: int, mark: Any, env: Env) -> StreamBacklog:
    keep, age = loss.number(fields.get("keep"), env), loss.number(fields.get("max_age"), env)
    trim = 0 if keep is None else max(0, length - keep)
    at_least = False
    if age is not None and length:
        bound = floor_stream_id(max(0, server.now_ms(want.queue) - age))
        old = len(server.read("XRANGE", want.keys.stream(name), "-", f"({bound}", "COUNT", COUNTED))
        at_least = old == COUNTED and old > trim
        trim = max(trim, old)
    fold = length
    if length and isinstance(mark, bytes) and mark.startswith(b"EVT"):
        try:
            last = parse(mark).stream_id
            fold = len(server.read("XRANGE", want.keys.stream(name), f"({last}", "+", "COUNT", COUNTED))
            at_least = at_least or fold == COUNTED
        except EmqError:
            fold = length
    return StreamBacklog(length, trim, at_least, fold)


def _read_left(server: Server, wants: Sequence[_Want], live: LiveServer) -> None:
    """What stands under policies that go."""
    todo = [(want, address, command) for want in wants for address, command in want.left.items()]
    for (want, address, _), count in zip(todo, _tolerant(server, [c for _, _, c in todo]), strict=True):
        if not isinstance(count, EmqError):
            live.queues[want.queue].left[address] = int(count)


def _tolerant(server: Server, commands: Sequence[Command]) -> list[Any]:
    """The replies; where one is an error, each is asked for by itself and the error stands in its place."""
    try:
        return server.read_many(commands)
    except ServerError:
        out: list[Any] = []
        for command in commands:
            try:
                out.append(server.read(*command))
            except ServerError as fault:
                out.append(fault)
        return out


def _read_dead(
    server: Server, ledger: Ledger | None, wants: Sequence[_Want], live: LiveServer, env: Env, as_of: Mapping[str, int]
) -> None:
    todo = [(want, want.dead) for want in wants if want.dead is not None]
    counts = _tolerant(server, [("ZCARD", want.keys.dead) for want, _ in todo])
    policies: dict[int, DeadPolicy] = {}  # queues that one glob takes share their fields
    for (want, fields), count in zip(todo, counts, strict=True):
        if isinstance(count, EmqError):
            live.queues[want.queue].damage = f"dead set: {count.what}"
            continue
        if id(fields) not in policies:
            policies[id(fields)] = dead_policy(fields, env)
        policy = policies[id(fields)]
        if count == 0 or (policy.max_age_ms is None and (policy.keep is None or count <= policy.keep)):
            live.queues[want.queue].dead = DeadFacts(count, (), 0)
            continue
        now = server.now_ms(want.queue)
        moment = min(now, as_of.get(want.queue, now))
        if policy.max_age_ms is not None:
            # Growing older is no news: a plan that was made earlier is compared as of then.
            policy = replace(policy, max_age_ms=policy.max_age_ms + now - moment)
        found = predict_trim(server, want.queue, policy, ledger)
        stay = Counter(skipped.reason.split(":")[0] for skipped in found.report.skipped)
        notes = tuple(f"{number} stay: {reason}" for reason, number in sorted(stay.items()))
        live.queues[want.queue].dead = DeadFacts(count, tuple(sorted(found.jobs)), moment, notes)
