"""The native commands for tests: a real module, compiled from ``tests/native`` by the system's compiler."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.valkey import Valkey

SOURCE = Path(__file__).parents[1] / "native" / "emq_module.c"


def compile_shared(source: Path, target: Path, *flags: str) -> Path:
    """Compiles a library that a process loads; a warning of the compiler is a failure."""
    given = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", *flags]
    subprocess.run([os.environ.get("CC", "cc"), *given, "-o", str(target), str(source)], check=True)
    return target


def build(folder: Path) -> Path:
    """Compiles the module into `folder`."""
    return compile_shared(SOURCE, folder / "emq_module.so", "-fvisibility=hidden")


def with_module(folder: Path, **config: str | int) -> Valkey:
    """A server that has loaded it, not started yet."""
    return Valkey(loadmodule=str(build(folder)), enable_module_command="yes", **config)
