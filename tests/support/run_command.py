"""``emq-ops`` in processes of its own, for `Zygote`: as from a shell, but for the second that Python takes to start.

daemon = start_command("up", cwd=folder, out=folder / "log")
done = run_command("sweep", "orders", cwd=folder)
assert (done.code, done.err) == (0, "")
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emq_ops.cli.main import run
from tests.support.cli import Ran
from tests.support.zygote import Child, shared

COMMAND_SECONDS = 300.0


def start_command(
    *argv: str,
    cwd: Path,
    out: Path,
    err: Path | None = None,
    stdin: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Child:
    """A command that runs beside the test. `err`: as `out` where it is None. `env`: all of it, else the test's own."""
    files = [str(stdin or os.devnull), str(out), str(err or out)]
    return shared().start(__name__, argv=argv, cwd=str(cwd), files=files, env=dict(os.environ if env is None else env))


def run_command(*argv: str, cwd: Path, stdin: Path | None = None, env: Mapping[str, str] | None = None) -> Ran:
    """Runs a command to its end."""
    with tempfile.TemporaryDirectory(prefix="emqr-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        code = start_command(*argv, cwd=cwd, out=out, err=err, stdin=stdin, env=env).wait(COMMAND_SECONDS)
        return Ran(code, out.read_text(), err.read_text())


def child(spec: dict[str, Any]) -> None:
    stdin, out, err = spec["files"]
    written = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    os.dup2(os.open(stdin, os.O_RDONLY), 0)
    os.dup2(os.open(out, written), 1)
    os.dup2(1 if err == out else os.open(err, written), 2)
    os.chdir(spec["cwd"])
    os.environ.clear()
    os.environ.update(spec["env"])
    sys.argv[:] = ["emq-ops", *spec["argv"]]
    run()
