"""Scores that no clock ever shows (infinite, beyond 64 bits): each command ends with what it did or one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_ops.cli.main import main
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import aside
from tests.support.passing import add, dead_of, kill_row, stall, take
from tests.support.valkey import Valkey

NEVER, AT_ONCE = ("+inf", "1e300", "9223372036854775808"), ("-inf", "-1e300")


@pytest.fixture
def mail(server: Server) -> Queue:
    return Queue(server, "mail")


@pytest.mark.parametrize("score", [*NEVER, *AT_ONCE])
def test_a_lease_with_an_odd_deadline(
    mail: Queue, valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str], score: str
) -> None:
    """It is a lease for ever, which holds up nobody else; or one that the sweep sets aside, and names."""
    [lapsed] = stall(mail)
    [odd] = add(mail)
    take(mail)
    mail.server.write("ZADD", mail.keys.active, score, odd)
    kill_row(mail, 3)
    words = ["--url", valkey.url, "--state", f"sqlite:///{tmp_path}/s.db"]
    said = []
    for command in (
        ["sweep", "mail", "--dry-run"],
        ["sweep", "mail", "--max-stalled", "5"],
        ["trim", "mail", "--yes", "--keep", "1", "--no-archive"],
        ["doctor"],
        ["play", "health-check.yaml", "-l", "mail"],
    ):
        code = main([*words, *command])
        err = capsys.readouterr().err
        assert "fault of emq-ops itself" not in err
        assert "state database" not in err
        said.append((command[0], code, err))
    assert len(dead_of(mail)) == 1
    swept = said[1]
    assert swept[1] == 0
    assert mail.server.read("ZSCORE", mail.keys.pending, lapsed) is not None
    assert mail.server.read("ZCARD", mail.keys.active) == 1
    assert aside.listing(mail)[odd].startswith("active: ")
