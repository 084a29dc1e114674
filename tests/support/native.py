"""The native commands for tests: a real module, compiled from ``tests/native`` by the system's compiler."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.valkey import Valkey

SOURCE = Path(__file__).parents[1] / "native" / "emq_module.c"


def build(folder: Path) -> Path:
    """Compiles the module into `folder`; a warning of the compiler is a failure."""
    target = folder / "emq_module.so"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"]
    subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", str(target), str(SOURCE)], check=True)
    return target


def with_module(folder: Path, **config: str | int) -> Valkey:
    """A server that has loaded it, not started yet."""
    return Valkey(loadmodule=str(build(folder)), enable_module_command="yes", **config)
