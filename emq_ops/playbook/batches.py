"""The batches of a play with ``serial``. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def split(names: Sequence[str], serial: Sequence[int | float]) -> list[list[str]]:
    """`names` in batches; the last size goes on. Shares are of all names, at least one queue."""
    if not serial:
        return [list(names)]
    sizes = [size if isinstance(size, int) else max(1, int(len(names) * size)) for size in serial]
    out: list[list[str]] = []
    first = 0
    while first < len(names):
        size = sizes[min(len(out), len(sizes) - 1)]
        out.append(list(names[first : first + size]))
        first += size
    return out
