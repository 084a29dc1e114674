"""The entry point: one grammar, lazy nouns. Exit codes: see `exits`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from emq_ops.cli.garbage import collect_no_more, collect_seldom


def run() -> None:
    """Console entry."""
    from emq_ops.cli.standard import exit_code_of, open_streams

    report = open_streams()
    if any("://" in arg for arg in sys.argv[1:]):
        from emq_ops.cli.conceal import HINT, conceal

        if conceal(sys.argv[1:]):
            sys.stderr.write(HINT)
    code = exit_code_of(main(sys.argv[1:]), report)
    collect_no_more()
    sys.exit(code)


def main(argv: Sequence[str]) -> int:
    """Runs one command line and returns its exit code. Never raises, but for a fault of its own under EMQ_OPS_DEBUG."""
    if list(argv) == ["--version"]:
        # Answered before anything heavy is imported.
        from importlib.metadata import version

        sys.stdout.write(f"emq-ops {version('emq-ops')}\n")
        return 0
    collect_seldom()
    from emq_ops.cli import root

    return root.invoke(list(argv), debug=bool(os.environ.get("EMQ_OPS_DEBUG")))


if __name__ == "__main__":
    run()
