"""What each command costs in processor time, end to end on a real server with 1, 100 and 1,000 queues.

User and system time of the command's process (the server's is not in it), the median of several runs, as a ratio to
importing what the command line is built on, measured between them in the same run. Which commands, and how they are
run: `tests/support/command_lines.py`.

Below the table: what `queue ls` costs against a process that does nothing but import redis and send the same
pipelines, at most 2x.

    python -m benchmarks.startup [WORDS ...] [--queues 1,100,1000] [--rounds 5] [--python PATH]

WORDS: just commands that begin so; PATH: the interpreter, with its emq-ops, that is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from emq_ops.overview.look import COMPLETIONS, call_of
from emq_ops.protocol.keyspace import EVERY_KEY_BUT_JOBS
from emq_ops.protocol.scripts import load
from tests.support.command_lines import LINES, Kind, Stage, set_up
from tests.support.sizes import sized
from tests.support.valkey import Valkey

LIBRARIES = "import typer, rich, redis, sqlalchemy"
BOUNDS: dict[Kind, float] = {"file": 1.0, "server": 1.0, "read": 1.3, "plan": 2.0}
"""How much of what the libraries cost a command may cost. What acts or reads the archive has none, and is shown."""
BARE = {"--version": "file", "--help": "file"}


LISTED = "queue ls"
MOST_LISTED = 2.0
PIPELINES = """
import json, sys, redis
url, pattern, source, calls = json.load(open(sys.argv[1]))
client = redis.Redis.from_url(url)
names = sum(1 for _ in client.scan_iter(pattern, count=5000))
sha = client.script_load(source)
for first in range(0, len(calls), 100):
    pipe = client.pipeline(transaction=False)
    for keys, args in calls[first : first + 100]:
        pipe.evalsha(sha, len(keys), *keys, *args)
    pipe.execute()
"""


def spent(argv: Sequence[str], folder: Path) -> float:
    """Seconds of processor time of a process and its children. Raises RuntimeError where it fails."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1, 2, 4):  # 4: it says why it does nothing
            said.seek(0)
            raise RuntimeError(f"{argv}: exit {process.returncode}: {said.read().decode()}")
    return used.ru_utime + used.ru_stime


def measure(python: str, stage: Stage, wanted: Sequence[str], rounds: int) -> dict[str, tuple[float, float]]:
    """By command: its median, and that of the libraries, in seconds."""
    libraries: list[float] = []
    own: dict[str, list[float]] = {words: [] for words in wanted}
    tool = [python, "-m", "emq_ops.cli.main"]
    for count in range(rounds + 1):
        if count == 1:  # the first round compiled what an installed package has compiled, and is not counted
            libraries.clear()
            for times in own.values():
                times.clear()
        for n, words in enumerate(wanted):
            if n % 5 == 0:
                libraries.append(spent([python, "-c", LIBRARIES], stage.folder))
            argv = [words] if words in BARE else stage.argv(words, LINES[words])
            own[words].append(spent([*tool, *argv], stage.folder))
    usual = statistics.median(libraries)
    return {words: (statistics.median(times), usual) for words, times in own.items()}


def bare(python: str, stage: Stage, queues: int, rounds: int) -> float:
    """Seconds of processor time that the pipelines of `queue ls` alone cost, the median."""
    calls = [call_of(f"queue-{n:04}", [COMPLETIONS]) for n in range(queues)]
    sent = stage.folder / "pipelines.json"
    source = load("queue_look").source.decode()
    sent.write_text(json.dumps([stage.named["url"], EVERY_KEY_BUT_JOBS, source, calls]))
    times = [spent([python, "-c", PIPELINES, str(sent)], stage.folder) for _ in range(rounds + 1)]
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*")
    parser.add_argument("--queues", default="1,100,1000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    given = sized(parser, queues="1", rounds=1, words=["--version", "plan", "dead ls"])
    kinds: dict[str, Kind] = {**dict.fromkeys(BARE, "file"), **{words: line.kind for words, line in LINES.items()}}
    wanted = [
        w for w, kind in kinds.items() if kind != "long" and (not given.words or w.startswith(tuple(given.words)))
    ]
    sizes = [int(size) for size in given.queues.split(",")]
    found: dict[int, dict[str, tuple[float, float]]] = {}
    pipelines: dict[int, float] = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder, Valkey() as valkey, contextlib.chdir(folder):
            stage = set_up(Path(folder), valkey, size)
            found[size] = measure(given.python, stage, wanted, given.rounds)
            if LISTED in wanted:
                pipelines[size] = bare(given.python, stage, size, given.rounds)
    print(f"{'processor time, ms (ratio)':<24}", *(f"{f'{size:,} queues':>16}" for size in sizes), f"{'at most':>9}")
    told = (f"{found[size][wanted[0]][1] * 1000:9.0f}       " for size in sizes)
    print(f"{'the libraries alone':<24}", *told)
    for words in wanted:
        cells = [f"{mine * 1000:9.0f} ({mine / usual:4.2f})" for mine, usual in (found[size][words] for size in sizes)]
        bound = BOUNDS.get(kinds[words])
        over = any(found[size][words][0] / found[size][words][1] > (bound or 99) for size in sizes)
        print(f"{words:<24}", *cells, f"{bound or '-':>8}{' beyond' if over else ''}")
    for size, alone in pipelines.items():
        ratio = found[size][LISTED][0] / alone
        print(
            f"{LISTED} of {size:,} queues: {ratio:.2f} times its pipelines alone ({alone * 1000:.0f} ms), at most "
            f"{MOST_LISTED}{' beyond' if ratio > MOST_LISTED else ''}"
        )


if __name__ == "__main__":
    main()
