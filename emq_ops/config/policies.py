"""From effective fields to what passes take: the policies, with references resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from emq_ops.config.explain import dotted
from emq_ops.config.models import PassSection
from emq_ops.policy.models import DeadPolicy, StalledPolicy, StreamPolicy
from emq_ops.policy.options import build
from emq_ops.policy.reading import Fault, Reader
from emq_ops.protocol.errors import BadInputError
from emq_ops.syntax.errors import shown

Env = Mapping[str, str]
T = TypeVar("T")


def checked(kind: type[T], fields: Mapping[str, Any], env: Env, where: str = "") -> T:
    """A section of a revision. Raises BadInputError where a reference gives what can't be taken."""
    reader = Reader(env)
    found = reader.section(kind, dict(fields))
    if found is None:
        raise _first(reader.faults, where)
    return found


def policy(kind: type[T], fields: Mapping[str, Any], env: Env, *, protect: bool = False) -> T:
    """A pass's policy for use. Raises BadInputError where a reference gives what can't be taken."""
    reader = Reader(env, use=True)
    values = reader.values(kind, dict(fields), beside=PassSection)
    if values is None:
        raise _first(reader.faults, "")
    return build(kind, values, protect=protect)


def _first(faults: list[Fault], where: str) -> BadInputError:
    fault = faults[0]
    path = ".".join(part for part in (where, dotted(fault.path)) if part)
    what = f"expected {fault.expected}" if fault.expected else f"{fault.sort} key {shown(fault.path[-1])}"
    return BadInputError(f"{path}: {what}", fix=fault.hint or None)


def stalled_policy(fields: Mapping[str, Any], env: Env, *, protect: bool = False) -> StalledPolicy:
    """The sweep's policy; as `policy`."""
    return policy(StalledPolicy, fields, env, protect=protect)


def dead_policy(fields: Mapping[str, Any], env: Env, *, protect: bool = False) -> DeadPolicy:
    """The dead trim's policy; as `policy`."""
    return policy(DeadPolicy, fields, env, protect=protect)


def stream_policy(fields: Mapping[str, Any], env: Env, *, protect: bool = False) -> StreamPolicy:
    """A stream's policy; as `policy`."""
    return policy(StreamPolicy, fields, env, protect=protect)
