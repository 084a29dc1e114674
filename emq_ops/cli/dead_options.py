"""The filters that say which dead jobs a command is about: the same options, in one place, for every command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from typing import Annotated, Any, TypeVar

import typer

from emq_ops.cli.values import duration_ms
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.protocol.errors import BadInputError

_T = TypeVar("_T")

Limit = Annotated[int | None, typer.Option("--limit", help="At most so many jobs.", metavar="N", min=1)]
Oldest = Annotated[bool, typer.Option("--oldest", help="With --limit: those minted first, over all queues.")]

_FILTERS: dict[str, tuple[Any, Any]] = {
    "cause": (list[str] | None, typer.Option(help="stalled, error, flow or unknown; repeatable.")),
    "error": (
        list[str] | None,
        typer.Option(help="An error group, a whole text, or a pattern of it ('*HTTP 503*' for a part); repeatable."),
    ),
    "older": (str | None, typer.Option(help="First seen dead at least this long ago (1h).", metavar="DURATION")),
    "newer": (str | None, typer.Option(help="First seen dead at most this long ago (1h).", metavar="DURATION")),
    "job": (list[str] | None, typer.Option(help="This job; repeatable.")),
    "payload": (str | None, typer.Option(help="The payload contains this text.")),
    "interruption": (int | None, typer.Option(help="Died of this interruption (its number in `audit restarts`).")),
    "killed_by": (str | None, typer.Option("--pass", help="Killed by this pass.", metavar="RUN")),
    "suspects": (bool, typer.Option("--suspects", help="Only those that a restart may have killed.")),
}


@dataclass(frozen=True, slots=True)
class DeadFilters:
    """What the options say: a selection, and whether only restart suspects are meant."""

    selection: DeadSelection
    suspects: bool = False

    @property
    def narrows(self) -> bool:
        """Whether any filter is given."""
        return self.suspects or self.selection.narrows

    def as_row(self) -> dict[str, object]:
        """What was given, as it is kept with a run."""
        return self.selection.as_row() | ({"suspects": True} if self.suspects else {})


def filtering(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of dead jobs; its parameter `filters` is what they say."""
    own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != "filters"]
    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if name == "suspects" else None,
            annotation=Annotated[kind, option],
        )
        for name, (kind, option) in _FILTERS.items()
    ]

    @functools.wraps(command)
    def filtered(*args: Any, **given: Any) -> None:
        values = {name: given.pop(name) for name in _FILTERS}
        command(*args, filters=_filters(values), **given)

    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own] + more
    filtered.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer goes by
    filtered.__annotations__ = {one.name: one.annotation for one in parameters}
    return filtered


def _filters(given: dict[str, Any]) -> DeadFilters:
    for option, name in (("--payload", "payload"), ("--pass", "killed_by"), ("--older", "older"), ("--newer", "newer")):
        if given[name] is not None and not given[name].strip():  # an empty filter is an error, never "any"
            raise BadInputError(f"{option} is empty", fix="leave it out to take any")
    selection = DeadSelection(
        causes=tuple(given["cause"] or ()),
        errors=tuple(given["error"] or ()),
        older_ms=duration_ms(given["older"], "--older"),
        newer_ms=duration_ms(given["newer"], "--newer"),
        jobs=tuple(given["job"] or ()),
        payload=(given["payload"] or "").encode("utf-8", "surrogateescape"),
        interruption=given["interruption"],
        killed_by=given["killed_by"],
    )
    return DeadFilters(selection, given["suspects"])


def limited(jobs: Iterable[_T], limit: int | None, *, oldest: bool, minted: Callable[[_T], str]) -> Iterator[_T]:
    """The first `limit` of `jobs`, or with `oldest` those with the lowest ids; all where there is no limit. All are
    walked through, so that whoever counts them has seen them. Raises BadInputError: `oldest` without a limit."""
    if limit is None:
        if oldest:
            raise BadInputError("--oldest without --limit", fix="--limit N --oldest")
        yield from jobs
        return
    source = iter(jobs)
    yield from nsmallest(limit, source, key=minted) if oldest else list(islice(source, limit))
    for _ in source:
        pass
