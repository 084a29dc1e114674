"""How the allocator of the C library shares memory out to the daemon's threads."""

from __future__ import annotations

import ctypes
import os

_ARENA_MAX = -8
"""M_ARENA_MAX of glibc's malloc.h."""
ARENAS = 2


def limit_arenas() -> None:
    """Makes glibc share `ARENAS` arenas among all threads. By itself it opens up to eight a core, and each keeps what
    its threads once needed. To be called before threads start. Does nothing where the environment says
    ``MALLOC_ARENA_MAX``, and with another C library."""
    if "MALLOC_ARENA_MAX" in os.environ:
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl, macOS: other allocators
        return
    mallopt(_ARENA_MAX, ARENAS)
