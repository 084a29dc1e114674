"""Memory that the process keeps does not go by the number of its threads."""

from __future__ import annotations

import os
import subprocess
import sys

from emq_ops.daemon.memory import ARENAS

LOOK = """
import ctypes, os, sys, tempfile, threading
import emq_archive.segment
import pyarrow
from emq_ops.daemon.memory import limit_arenas, trim

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
trim()
print(before - resident())
"""


def test_threads_share_few_arenas_and_what_is_free_is_given_back() -> None:
    left_to_us = {k: v for k, v in os.environ.items() if k not in ("ARROW_DEFAULT_MEMORY_POOL", "MALLOC_ARENA_MAX")}
    done = subprocess.run([sys.executable, "-c", LOOK], env=left_to_us, capture_output=True, text=True, check=True)
    allocator, arenas, given_back = done.stdout.split()
    assert allocator == "system"  # Arrow's other ones keep a heap for each thread
    assert 1 <= int(arenas) <= ARENAS
    assert int(given_back) > 30_000_000  # of 40 MB that lie free within an arena
