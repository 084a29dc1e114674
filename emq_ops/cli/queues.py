"""Which queues a command is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emq_ops.protocol import globs
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.keyspace import queue_name


def chosen(selectors: Sequence[str], live: Iterable[str], named: Iterable[str] = ()) -> list[str]:
    """The queues that `selectors` (names or globs) take of those on the server (`live`) and in the config (`named`);
    all of them without a selector. Raises BadInputError for one that takes nothing: never "all" by mistake."""
    known = sorted({*live, *named})
    if not selectors:
        return known
    out: set[str] = set()
    for selector in selectors:
        taken = globs.select(selector, known)
        if not taken:
            if not globs.is_glob(selector):
                queue_name(globs.literal(selector))
            raise BadInputError(
                f"no queue matches '{one_line(selector[:80])}'",
                fix="name one that has keys on the server or stands in the config",
            )
        out.update(taken)
    return sorted(out)
