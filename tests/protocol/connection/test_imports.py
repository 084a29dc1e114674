"""What importing the protocol costs."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("boto3", "botocore", "pyarrow", "sqlalchemy", "duckdb", "apscheduler", "rich", "valkey")


def test_the_protocol_pulls_in_nothing_heavy() -> None:
    code = (
        "import sys, emq_ops.protocol, emq_ops.protocol.server, emq_ops.protocol.queue\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
