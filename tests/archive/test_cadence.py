"""How many segments a quiet stream makes: a simulated clock, real stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emq_archive.driver import Driver
from emq_archive.model import Policy, Writer
from emq_archive.source import StreamSource
from emq_archive.write.pace import BURST
from emq_ops.protocol.server import Server
from tests.archive.folding import STATE, Host
from tests.archive.making import START_MS

EVERY_MS = 5_000
HOUR_MS = 3_600_000


def live(server: Server, root: Path, span_ms: int, **policy: Any) -> Host:
    """A driver's cycles every 5 s for that long, a record before each."""
    host = Host.in_folder(server, root)
    now = [START_MS]
    source = StreamSource(host.queue, host.stream, clock=lambda: now[0])
    driver = Driver(source, host.local, host.remote, Policy(**policy), None, Writer(STATE))
    for at in range(0, span_ms, EVERY_MS):
        now[0] = START_MS + at
        host.add(f"{now[0]}-0")
        driver.cycle()
    assert set(host.sent) - set(host.rows()) == set()
    return host


@pytest.mark.parametrize("keep", [100, 0])
def test_minutes_of_light_traffic(server: Server, tmp_path: Path, keep: int) -> None:
    host = live(server, tmp_path, 12 * 60_000, keep=keep)
    segments = host.bucket.segments("mail", "completions")
    assert 11 <= len(segments) <= 12 + BURST
    # What may go goes at the latest with the next minute's segment.
    assert len(host.left()) <= keep + 60_000 // EVERY_MS
    host.close()


@pytest.mark.parametrize(
    "keep", [pytest.param(100, marks=pytest.mark.soak(minutes=4)), pytest.param(0, marks=pytest.mark.soak(minutes=2))]
)
def test_hours_of_light_traffic(server: Server, tmp_path: Path, keep: int) -> None:
    hours = 8
    host = live(server, tmp_path, hours * HOUR_MS, keep=keep)
    segments = len(host.bucket.segments("mail", "completions"))
    print(f"\nkeep {keep}: {len(host.sent)} records in as many cycles became {segments} segments")
    assert segments <= hours * 63
    host.close()
