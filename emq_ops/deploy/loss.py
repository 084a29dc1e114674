"""Changes that could lose data, each with its reason. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emq_ops.deploy.model import LiveServer, Step
from emq_ops.deploy.variables import Past
from emq_ops.policy.references import ReferenceFault, UnresolvedReference, has_reference, resolve
from emq_ops.policy.scalars import parse_duration
from emq_ops.syntax.core import scalar

Json = dict[str, Any]
Env = Mapping[str, str]


def told(value: Any, env: Env) -> Any:
    """A value as what it says now: a number, a switch or text."""
    if not has_reference(value):
        return value
    try:
        return scalar(resolve(value, env))
    except ReferenceFault:
        return value


def number(value: Any, env: Env) -> int | None:
    """A count or a duration (ms) as a number; None: not set, or not to be told here."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    text = str(value)
    try:
        text = resolve(text, env) if has_reference(text) else text
        return int(text) if text.isdecimal() else parse_duration(text)
    except (ReferenceFault, ValueError):
        return None


def switch(value: Any, env: Env) -> bool:
    """A switch that may be a reference. One that said something else before is taken for true: what it guards is
    asked about rather than lost."""
    if isinstance(value, Past):
        return True
    if has_reference(value):
        try:
            return resolve(value, env) == "true"
        except UnresolvedReference:
            return True  # nobody looks what it says: no loss is told on its account
        except ReferenceFault:
            return False
    return bool(value)


def lowered(name: str, before: Json | None, after: Json, env: Env) -> str | None:
    """Why the bound `name` lets go of more than before, or None where it does not."""
    new = number(after.get(name), env)
    if new is None:
        return None
    given = (before or {}).get(name)
    if isinstance(given, Past):  # what it said then is not known
        return f"{name} goes from {given} to {told(after[name], env)}"
    old = number(given, env)
    if old is None:
        return f"{name} {after[name]} is new"
    return f"{name} goes from {given} to {after[name]}" if new < old else None


def of_dead(before: Json | None, after: Json | None, env: Env) -> list[str]:
    """Of a changed dead trim."""
    if after is None:
        return []
    out: list[str] = []
    archived = switch(after.get("archive"), env)
    if before is not None and switch(before.get("archive"), env) and not archived:
        out.append("archive is turned off: what is trimmed from now on is lost")
    elif not archived:
        out += [f"{why}, with archive: false: what is trimmed is lost" for why in _bounds(before, after, env)]
        if after.get("max_age") is not None and _turned("age_by", before, after, "minted"):
            out.append(
                "age_by goes to minted, with archive: false: jobs are older at once, and what is trimmed is lost"
            )
    return out + _proof(before, after) + _expiry(before, after, env)


def of_stream(before: Json | None, after: Json | None, env: Env, *, archive: bool) -> list[str]:
    """Of a changed stream policy. `archive`: whether there is an archive to keep the records."""
    if after is None:
        return []
    out = [] if archive else [f"{why}, and there is no archive: section" for why in _bounds(before, after, env)]
    bounded = after.get("keep") is not None or after.get("max_age") is not None
    if bounded and _turned("groups", before, after, "ignore"):
        out.append("groups goes to ignore: records are trimmed that a consumer group has yet to read")
    return out + (_proof(before, after) if bounded else []) + _expiry(before, after, env)


def _turned(name: str, before: Json | None, after: Json, word: str) -> bool:
    """Whether a choice that was applied as another one is now `word`."""
    return before is not None and after.get(name) == word and before.get(name) != word


def _proof(before: Json | None, after: Json) -> list[str]:
    if not _turned("trim_after", before, after, "local"):
        return []
    return ["trim_after goes to local: what is trimmed is on one disk only until it is shipped"]


def _bounds(before: Json | None, after: Json, env: Env) -> list[str]:
    return [why for name in ("keep", "max_age") if (why := lowered(name, before, after, env))]


def _expiry(before: Json | None, after: Json, env: Env) -> list[str]:
    why = lowered("expire_after", before, after, env)
    return [f"{why}: archived segments go for good"] if why else []


def of_archive(before: Json | None, after: Json | None) -> list[str]:
    """Of a changed archive section."""
    if not before:
        return []
    if not after:
        return ["the archive is turned off: what is trimmed from now on is lost"]
    if before.get("remote") and not after.get("remote"):
        return ["the remote archive is turned off: records are on one disk only"]
    return []


def lost_by_server(steps: Sequence[Step], live: LiveServer) -> list[str]:
    """A line each on queues whose settings the server lost, with the proof."""
    queues = dict.fromkeys(step.queue for step in steps if step.op == "restore" and step.queue is not None)
    out = []
    for gone, proof in ((True, "the note of the last apply is gone"), (False, "it carries the note of an earlier one")):
        names = [queue for queue in queues if (live.of(queue).note is None) is gone]
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            told = f"the server lost what was applied to {', '.join(names[:3])}{more} ({proof})"
            out.append(f"{told}; `emq-ops apply` puts it back")
    return out
