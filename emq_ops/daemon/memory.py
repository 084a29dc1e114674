"""What the C library's allocator keeps for the daemon's threads, and gives back."""

from __future__ import annotations

import contextlib
import ctypes
import os

EVERY_SECONDS = 60.0
_ARENA_MAX = -8
"""M_ARENA_MAX of glibc's malloc.h."""
ARENAS = 2


def limit_arenas() -> None:
    """Makes glibc share `ARENAS` arenas among all threads. By itself it opens up to eight a core, and each keeps what
    its threads once needed. To be called before threads start. Does nothing where the environment says
    ``MALLOC_ARENA_MAX``, and with another C library."""
    if "MALLOC_ARENA_MAX" not in os.environ:
        _ask("mallopt", _ARENA_MAX, ARENAS)


def trim() -> None:
    """Gives the pages that are free within arenas back to the system: by itself glibc gives back only what is free at
    an arena's end, so that the largest fold of a day stays resident. Takes some milliseconds. Does nothing with another
    C library."""
    _ask("malloc_trim", ctypes.c_size_t(0))


def _ask(name: str, *numbers: int | ctypes.c_size_t) -> None:
    with contextlib.suppress(OSError, AttributeError):  # musl and macOS have other allocators
        getattr(ctypes.CDLL(None), name)(*numbers)
