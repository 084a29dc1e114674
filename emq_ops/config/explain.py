"""Faults of a reading as config errors: where each value stands, what was expected, what comes closest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emq_ops.policy.reading import Fault
from emq_ops.policy.words import nearest
from emq_ops.syntax.errors import Position, SourceError, shown
from emq_ops.syntax.tree import ListTree, MapTree, Tree


def dotted(parts: Sequence[str | int]) -> str:
    """A path as errors show it: ``queues.orders.dead.keep``, ``maintenance[0].from``."""
    out = ""
    for part in parts:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            name = part if part.replace("-", "").replace("_", "").isalnum() else f'"{part}"'
            out += f".{name}" if out else name
    return out


def locate(tree: Tree, parts: Sequence[str | int], *, key: bool = False) -> tuple[Position, Tree]:
    """The mark of what stands at a path (`key`: of its key) and the value; the nearest thing above it where there is
    nothing."""
    mark, here = tree.mark, tree
    for part in parts:
        if isinstance(here, MapTree) and isinstance(part, str) and part in here.items:
            key_mark, here = here.items[part]
            mark = key_mark if key or isinstance(here, MapTree | ListTree) else here.mark
        elif isinstance(here, ListTree) and isinstance(part, int) and part < len(here.items):
            here = here.items[part]
            mark = here.mark
        else:
            break
    return mark, here


def explain(faults: Iterable[Fault], tree: Tree, prefix: tuple[str, ...] = ()) -> SourceError:
    """All faults of one reading as one error, the first of the file in front."""
    return combine([_one(fault, tree, prefix) for fault in faults])


def combine(faults: list[SourceError]) -> SourceError:
    """`faults` as one error: the first in file order, with the others behind it."""
    order = sorted(faults, key=lambda f: (f.mark.file, f.mark.line, f.mark.column) if f.mark else ("", 0, 0))
    first = order[0]
    first.others = tuple(order[1:])
    return first


def _one(fault: Fault, tree: Tree, prefix: tuple[str, ...]) -> SourceError:
    path = dotted([*prefix, *fault.path])
    if fault.sort == "unknown":
        mark, _ = locate(tree, fault.path, key=True)
        close = nearest(str(fault.path[-1]), fault.known)
        fix = None if close else f"keys here: {', '.join(fault.known)}"
        return SourceError("unknown key", mark, path=path, nearest=close, fix=fix)
    if fault.sort == "missing":
        mark, _ = locate(tree, fault.path[:-1], key=True)
        return SourceError("is missing", mark, path=path, fix="add it")
    of_key = fault.sort == "name"
    mark, value = locate(tree, fault.path, key=of_key)
    got = None if fault.secret else shown(fault.path[-1]) if of_key else _got(value)
    fix = fault.hint or None
    if got == "false" and "enabled" in fault.known:
        fix = "write {enabled: false}"
    what = "the key" if of_key else ""
    return SourceError(what, mark, path=path, expected=fault.expected, got=got, fix=fix)


def _got(value: Tree) -> str:
    if isinstance(value, MapTree):
        return "a mapping"
    if isinstance(value, ListTree):
        return "a list"
    return shown(value.value)
