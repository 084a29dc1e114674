"""Standard streams that may be closed or full: the work is done all the same, and then only the report was lost."""

from __future__ import annotations

import io
import os
import sys

EXIT_REPORT_LOST = 5


class ReportStream(io.FileIO):
    """Standard output, unbuffered. What can't be written is let go of, and `lost` says why; a reader that went away
    (``| head``) is a BrokenPipeError, as usual."""

    def __init__(self, fd: int, lost: str | None = None) -> None:
        super().__init__(fd, "w", closefd=False)
        self.lost: str | None = None
        self._closed_early = lost

    def write(self, data: object) -> int:
        """Writes, or lets go."""
        size = len(memoryview(data))  # type: ignore[arg-type]  # bytes, or a buffer of them
        if self._closed_early is not None:
            self.lost = self._closed_early
        if self.lost is not None:
            return size
        try:
            return super().write(data)  # type: ignore[arg-type]  # as above
        except BrokenPipeError:
            raise
        except OSError as fault:
            self.lost = fault.strerror or str(fault)
            return size


def open_streams() -> ReportStream:
    """Replaces standard output, and streams that were closed before we began: else the first file that is opened would
    take their place."""
    for fd, missing in ((0, sys.stdin is None), (2, sys.stderr is None)):
        if missing:
            _occupy(fd)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # for the life of the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # as above
    encoding, errors = "utf-8", "backslashreplace"
    if sys.stdout is None:
        _occupy(1)
        raw = ReportStream(1, "it is closed")
    else:
        encoding, errors = sys.stdout.encoding, sys.stdout.errors or "strict"
        raw = ReportStream(sys.stdout.fileno())
    buffer = io.BufferedWriter(raw)
    sys.stdout = io.TextIOWrapper(buffer, encoding=encoding, errors=errors, line_buffering=raw.isatty())
    return raw


def _occupy(fd: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != fd:
        os.dup2(null, fd)
        os.close(null)


def exit_code_of(code: int, report: ReportStream) -> int:
    """Returns the exit code of a command that ended with `code`, and says so where only its report was lost."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if report.lost is None or code not in (0, 2):
        return code
    sys.stderr.write(f"emq-ops: only the report was lost: stdout can't be written: {report.lost} (the work is done)\n")
    return EXIT_REPORT_LOST
