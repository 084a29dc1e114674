"""Exit codes: 0 done, 1 error, 2 changes pending or a task failed, 3 unreachable, 4 bad input, 5 only the report was
lost, 130 interrupted."""

from __future__ import annotations

from emq_ops.protocol.errors import BadInputError, EmqError, KindError, UnreachableError

EXIT_ERROR, EXIT_CHANGES, EXIT_UNREACHABLE, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 3, 4, 130


def exit_code(error: EmqError) -> int:
    """Returns the exit code of an error, by its branch."""
    if isinstance(error, BadInputError | KindError):  # an id of another kind is no better than a malformed one
        return EXIT_BAD_INPUT
    if isinstance(error, UnreachableError):
        return EXIT_UNREACHABLE
    return EXIT_ERROR
