"""Keys of a terminal, one by one, while ``emq-ops top`` has the screen."""

from __future__ import annotations

import contextlib
import os
import re
import select
import termios
import tty
from collections.abc import Iterator

from emq_ops.cli.top_screen import BACKSPACE, DOWN, ENTER, ESCAPE, PAGE_DOWN, PAGE_UP, UP

_SEQUENCES = {
    b"\x1b[A": UP,
    b"\x1b[B": DOWN,
    b"\x1bOA": UP,
    b"\x1bOB": DOWN,
    b"\x1b[5~": PAGE_UP,
    b"\x1b[6~": PAGE_DOWN,
    b"\r": ENTER,
    b"\n": ENTER,
    b"\x1b": ESCAPE,
    b"\x7f": BACKSPACE,
    b"\x08": BACKSPACE,
}
_UNKNOWN = re.compile(rb"\x1b(\[[0-?]*[ -/]*[@-~]?|O.?)")


@contextlib.contextmanager
def unbuffered(fd: int) -> Iterator[None]:
    """Keys come one by one and are not echoed; the terminal is as it was afterwards."""
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def read_keys(fd: int, wait_s: float) -> list[str]:
    """The keys that were struck within `wait_s`, as soon as there are any. Raises EOFError where the terminal went."""
    ready, _, _ = select.select([fd], [], [], wait_s)
    if not ready:
        return []
    struck = os.read(fd, 1024)
    if not struck:
        raise EOFError
    return list(parse_keys(struck))


def parse_keys(struck: bytes) -> Iterator[str]:
    """The names of what was struck; sequences that mean nothing here are passed over."""
    while struck:
        for sequence in sorted(_SEQUENCES, key=len, reverse=True):
            if struck.startswith(sequence) and not (sequence == b"\x1b" and struck[1:2] in (b"[", b"O")):
                yield _SEQUENCES[sequence]
                struck = struck[len(sequence) :]
                break
        else:
            if struck[:1] == b"\x1b":
                struck = _UNKNOWN.sub(b"", struck, count=1)
                continue
            length = next((n for n in (1, 2, 3, 4) if _is_text(struck[:n])), 1)
            yield struck[:length].decode("utf-8", "replace")
            struck = struck[length:]


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
