"""Memory that the process keeps goes neither by the number of its threads nor by how long it runs."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref

from emq_ops.daemon.memory import ARENAS, tidy

LOOK = """
import ctypes, os, sys, tempfile, threading
import emq_archive.segment
import pyarrow
from emq_ops.daemon.memory import limit_arenas, tidy

limit_arenas()
met = threading.Barrier(8)

def use():
    met.wait()
    kept = [bytearray(5000) for _ in range(100)]  # larger than what Python's own allocator takes on
    met.wait()

threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as told:
    stream = ctypes.c_void_p(libc.fopen(told.name.encode(), b"w"))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(pyarrow.default_memory_pool().backend_name, told.read().count(b"<heap nr="))

def resident():
    with open("/proc/self/statm") as told:
        return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

held = [bytearray(5000) for _ in range(8000)]
above = bytearray(5000)  # so that they are not the arena's end
held.clear()
before = resident()
tidy()
print(before - resident())
"""


def test_threads_share_few_arenas_and_what_is_free_is_given_back() -> None:
    left_to_us = {k: v for k, v in os.environ.items() if k not in ("ARROW_DEFAULT_MEMORY_POOL", "MALLOC_ARENA_MAX")}
    done = subprocess.run([sys.executable, "-c", LOOK], env=left_to_us, capture_output=True, text=True, check=True)
    allocator, arenas, given_back = done.stdout.split()
    assert allocator == "system"  # Arrow's other ones keep a heap for each thread
    assert 1 <= int(arenas) <= ARENAS
    assert int(given_back) > 30_000_000  # of 40 MB that lie free within an arena


class _Ring:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


def test_garbage_that_grew_old_before_it_was_garbage_goes() -> None:
    ring = _Ring()
    gc.collect()  # it is of the oldest now, which Python looks at last
    seen = weakref.ref(ring)
    del ring
    assert seen() is not None
    tidy()
    assert seen() is None
