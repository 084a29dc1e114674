"""How long `emq-ops --version` takes, against importing the command line's own libraries, alternating in one run."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 15
COMMANDS = {
    "emq-ops --version": [sys.executable, "-m", "emq_ops.cli.main", "--version"],
    "import typer, rich": [sys.executable, "-c", "import typer, rich"],
}


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in medians.items():
        print(f"{name:<20} {seconds * 1000:7.1f} ms   (median of {ROUNDS})")
    tool, libraries = medians.values()
    print(f"{'ratio':<20} {tool / libraries:7.2f}      (at most 2.5)")


if __name__ == "__main__":
    main()
