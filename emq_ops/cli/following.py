"""What goes on until Ctrl-C: watching, following."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from emq_ops.cli.garbage import collect_for_long
from emq_ops.cli.output import emit_rows
from emq_ops.protocol.errors import one_line


@contextlib.contextmanager
def until_interrupted() -> Iterator[threading.Event]:
    """Ends quietly at Ctrl-C, also where it came into code that lets nothing out."""
    collect_for_long()
    struck = threading.Event()

    def strike(*_: object) -> None:
        struck.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, strike)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield struck
    finally:
        signal.signal(signal.SIGINT, before)


def tell_row(row: Mapping[str, Any], text: str, output: str) -> None:
    """Writes one row at once: `text` on a line that can't steer a terminal, or JSON on one."""
    if output == "table":
        sys.stdout.write(one_line(text) + "\n")
    else:
        emit_rows([row], "csv" if output == "csv" else "jsonl", list(row))
    sys.stdout.flush()
