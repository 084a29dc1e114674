"""What each test costs in processor time, the servers and processes that it drives counted in.

    python -m pytest -p tests.support.costs --costs costs.txt tests/archive
    python -m tests.support.costs costs.txt            # by folder, by file, the dearest tests

Wall time says little on a machine that others use too. A shared server counts for whichever test makes it work.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.postgres import Postgres

TICKS = os.sysconf("SC_CLK_TCK")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", required=True, help="the file that each test adds a line to")


def _spent() -> float:
    """Processor seconds of this process and everything below it so far, and of the PostgreSQL servers of the tests."""
    parents, seconds = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            _, _, rest = Path(f"/proc/{entry}/stat").read_text().rpartition(")")
        except OSError:
            continue  # it ended meanwhile
        fields = rest.split()
        parents[int(entry)] = int(fields[1])
        seconds[int(entry)] = sum(map(int, fields[11:15])) / TICKS
    ours = {os.getpid(), *(server.pid for server in Postgres.running)}
    while more := {pid for pid, parent in parents.items() if parent in ours and pid not in ours}:
        ours |= more
    return sum(seconds[pid] for pid in ours if pid in seconds)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before, began = _spent(), time.monotonic()
    result = yield
    line = f"{_spent() - before:.2f} {time.monotonic() - began:.2f} {item.nodeid}\n"
    with open(item.config.getoption("--costs"), "a") as file:
        file.write(line)
    return result


def main(path: str, most: int = 40) -> None:
    """Sums by folder and file, and the dearest tests."""
    by_folder: dict[str, float] = defaultdict(float)
    by_file: dict[str, float] = defaultdict(float)
    rows = []
    for line in Path(path).read_text().splitlines():
        cpu, wall, test = line.split(" ", 2)
        file = test.partition("::")[0]
        by_file[file] += float(cpu)
        by_folder[os.path.dirname(file)] += float(cpu)
        rows.append((float(cpu), float(wall), test))
    print(f"{sum(by_folder.values()):8.1f} s in all, {len(rows)} tests")
    for sums in (by_folder, by_file):
        print()
        for name, cpu in sorted(sums.items(), key=lambda pair: -pair[1])[:most]:
            print(f"{cpu:8.1f} {name}")
    print()
    for cpu, wall, test in sorted(rows, reverse=True)[:most]:
        print(f"{cpu:8.2f} ({wall:.2f} s on the clock) {test}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
