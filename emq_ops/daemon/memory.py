"""What Python and the C library keep for the daemon's threads, and give back."""

from __future__ import annotations

import contextlib
import ctypes
import gc
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


def tidy() -> None:
    """Frees what refers to itself and is used no more, then gives the pages that are free within arenas back to the
    system. By itself Python looks so seldom (`emq_ops.cli.garbage`) that the garbage of hours would stay, and glibc
    gives back only what is free at an arena's end. Takes some tens of ms, with thousands of queues some hundreds. The
    second half does nothing with another C library."""
    gc.collect()
    _ask("malloc_trim", ctypes.c_size_t(0))


def _ask(name: str, *numbers: int | ctypes.c_size_t) -> None:
    with contextlib.suppress(OSError, AttributeError):  # musl and macOS have other allocators
        getattr(ctypes.CDLL(None), name)(*numbers)
