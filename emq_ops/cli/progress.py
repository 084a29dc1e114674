"""How far a long command is, on stderr: a line on a terminal, with rate and time left, else nothing."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator

from emq_ops.cli.table import look
from emq_ops.protocol.terminal import draws_over

AFTER_SECONDS = 1.0
"""What ends sooner shows nothing."""
EVERY_SECONDS = 0.25


@contextlib.contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yields what is to be called with how much is done, of how much (0: nobody knows). Where it is never called, the
    time so far is shown."""
    if look.quiet or not draws_over(sys.stderr):
        yield lambda _done, _total: None
        return
    line = _Line(what)
    try:
        yield line.tell
    finally:
        line.end()


class _Line:
    """Drawn by a thread of its own, so that one sees that it lives while a step takes long."""

    def __init__(self, what: str) -> None:
        self._what, self._began = what, time.monotonic()
        self._done, self._total = 0, 0
        self._drawn = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw_all, name="progress", daemon=True)
        self._thread.start()

    def tell(self, done: int, total: int) -> None:
        self._done, self._total = done, total

    def _draw_all(self) -> None:
        if self._over.wait(AFTER_SECONDS):
            return
        while True:
            text = words(self._what, self._done, self._total, time.monotonic() - self._began)
            room = shutil.get_terminal_size().columns - 1
            self._drawn = True
            sys.stderr.write(f"\r\x1b[K{text[:room]}")
            sys.stderr.flush()
            if self._over.wait(EVERY_SECONDS):
                return

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def words(what: str, done: int, total: int, seconds: float) -> str:
    """How far it is after so many seconds: ``fold orders: 1,200 of 5,000 (24 %), 300/s, 13 s left``."""
    if not done:
        return f"{what}: {span(seconds)} so far"
    rate = done / max(seconds, 0.001)
    pace = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"
    if total <= 0:
        return f"{what}: {done:,}, {pace}, {span(seconds)} so far"
    left = max(0, total - done) / rate
    return f"{what}: {done:,} of {total:,} ({100 * min(done, total) // total} %), {pace}, {span(left)} left"


def span(seconds: float) -> str:
    """``4 s``, ``3 min``, ``2 h``."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
