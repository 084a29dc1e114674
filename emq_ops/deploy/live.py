"""The facts that a plan rests on, read from the server and the ledger in a few flushes, whatever the number of queues.

Only what a plan needs is read: the settings that somebody manages, who owns each queue, and the dead sets and streams
of policies that change. Nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from emq_ops.config.policies import dead_policy
from emq_ops.deploy import effects, loss, settings
from emq_ops.deploy.document import Document
from emq_ops.deploy.live_settings import read_settings
from emq_ops.deploy.model import DeadFacts, Interrupted, LiveServer, StreamBacklog
from emq_ops.ledger.alerts import competing
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.lease.owner import foreign_queues
from emq_ops.passes.observe.claimers import look_at_flat
from emq_ops.passes.observe.pumps import look_at_pumps, pumped_lately
from emq_ops.passes.trim.predict import predict_trim
from emq_ops.policy.models import DeadPolicy
from emq_ops.protocol.errors import DamagedError, EmqError, ServerError
from emq_ops.protocol.ids import floor_stream_id, parse
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.server import Arg, Server

Env = Mapping[str, str]
Json = dict[str, Any]
Command = Sequence[Arg]
Left = Mapping[tuple[str, str], tuple[Any, Any]]

Unread = Callable[[str, str], int | None]
"""(queue, stream) -> how many records our archive did not read yet; None: it knows nothing of the stream."""

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
    """Everything that `planner.plan` wants to know, but for `tell_unread`. `as_of`: queue -> server time (ms) at which
    an earlier plan looked at its dead set: ages are told as of then."""
    desired, before = desired.completed, (applied or Document.empty()).completed
    live = LiveServer(interrupted=interrupted)
    left = {queue for queue, _ in live.left}
    flat = settings.Flattened()
    wants = [
        _Want(queue, desired, before, live.left, flat) for queue in sorted({*desired.queues, *before.queues, *left})
    ]
    live.queues = read_settings(server, {want.queue: want.paths for want in wants})
    if ledger is not None:
        leases = {queue: facts.lease for queue, facts in live.queues.items() if facts.lease is not None}
        for queue, fault in foreign_queues(ledger, leases).items():
            live.queues[queue].foreign = fault
    _read_streams(server, wants, live, env)
    _read_dead(server, ledger, wants, live, env, as_of or {})
    _read_left(server, wants, live)
    _read_pumps(server, ledger, desired, live)
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
        for section, key in (
            ("stalled", self.keys.active),
            ("dead", self.keys.dead),
            ("promote", self.keys.schedule),
        ):
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


def _read_pumps(server: Server, ledger: Ledger | None, desired: Document, live: LiveServer) -> None:
    """Who fires the repeatables, and whether anybody claims what lands in flat pending."""
    now = max((facts.now_ms for facts in live.queues.values()), default=0)
    known = pumped_lately(ledger, None, now) if ledger is not None and now else {}
    for queue in known.keys() & live.queues.keys():
        live.queues[queue].pumped = True
    for queue, seen in look_at_pumps(server, [q for q, facts in live.queues.items() if facts.repeats]).items():
        facts = live.queues[queue]
        facts.pumping, facts.pumped = seen, facts.pumped or bool(seen.advanced)
    flat = [queue for queue, fields in desired.queues.items() if effects.lands_flat(fields)]
    for queue, look in look_at_flat(server, flat).items():
        live.queues[queue].flat = look


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
            live.queues[want.queue].damage.append(f"stream {name}: {length.what}")
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


def tell_unread(live: LiveServer, unread: Unread) -> None:
    """Puts what the archive itself knows in the place of what the cached watermark says of the streams that change."""
    for queue, facts in live.queues.items():
        for name, backlog in facts.streams.items():
            known = unread(queue, name)
            if known is not None:
                facts.streams[name] = replace(backlog, fold=known)


def _read_left(server: Server, wants: Sequence[_Want], live: LiveServer) -> None:
    """What stands under policies that go."""
    todo = [(want, address, command) for want in wants for address, command in want.left.items()]
    for (want, address, _), count in zip(todo, _tolerant(server, [c for _, _, c in todo]), strict=True):
        if not isinstance(count, EmqError):
            live.queues[want.queue].left[address] = int(count)


def _tolerant(server: Server, commands: Sequence[Command]) -> list[Any]:
    """The replies, and in place of one the error that says what is wrong with that key. Raises other errors."""
    replies = server.read_each(commands)
    for reply in replies:
        if isinstance(reply, EmqError) and not isinstance(reply, ServerError | DamagedError):
            raise reply
    return replies


def _read_dead(
    server: Server, ledger: Ledger | None, wants: Sequence[_Want], live: LiveServer, env: Env, as_of: Mapping[str, int]
) -> None:
    todo = [(want, want.dead) for want in wants if want.dead is not None]
    counts = _tolerant(server, [("ZCARD", want.keys.dead) for want, _ in todo])
    policies: dict[int, DeadPolicy] = {}  # queues that one glob takes share their fields
    for (want, fields), count in zip(todo, counts, strict=True):
        if isinstance(count, EmqError):
            live.queues[want.queue].damage.append(f"dead set: {count.what}")
            live.queues[want.queue].dead = DeadFacts(0, (), 0)  # the first pass removes nothing that was not listed
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
        try:
            found = predict_trim(server, want.queue, policy, ledger)
        except DamagedError as fault:
            live.queues[want.queue].damage.append(f"dead set: {fault.what}")
            live.queues[want.queue].dead = DeadFacts(count, (), moment)
            continue
        stay = Counter(skipped.reason.split(":")[0] for skipped in found.report.skipped)
        notes = tuple(f"{number} stay: {reason}" for reason, number in sorted(stay.items()))
        live.queues[want.queue].dead = DeadFacts(count, tuple(sorted(found.jobs)), moment, notes)
