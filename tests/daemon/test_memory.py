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
from emq_ops.daemon.memory import limit_arenas

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
"""


def test_threads_share_few_arenas() -> None:
    left_to_us = {k: v for k, v in os.environ.items() if k not in ("ARROW_DEFAULT_MEMORY_POOL", "MALLOC_ARENA_MAX")}
    done = subprocess.run([sys.executable, "-c", LOOK], env=left_to_us, capture_output=True, text=True, check=True)
    allocator, arenas = done.stdout.split()
    assert allocator == "system"  # Arrow's other ones keep a heap for each thread
    assert 1 <= int(arenas) <= ARENAS
