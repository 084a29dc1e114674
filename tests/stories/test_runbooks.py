"""The runbooks of docs/runbooks: each one's commands, from its text, where just that has happened."""

from __future__ import annotations

import re
import resource
import shlex
import shutil
import subprocess
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import reads
from tests.audit.working import failed
from tests.support.cli import Ran, emq
from tests.support.postgres import Postgres
from tests.support.valkey import Valkey

FOLDER = Path(__file__).parents[2] / "docs" / "runbooks"
CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///.emq/state.db"}}
archive: {{local: "sqlite:///.emq/archive.db", remote: {{url: "file:.emq/bucket"}}{more}}}
queues:
  orders:
    stalled: {{every: 1h}}
    dead: {{every: 1h, keep: 1, archive: true}}
    streams: {{completions: {{every: 1h, keep: 1}}}}
    settings: {{concurrency: 50}}
"""


@dataclass
class Place:
    """A folder with a config, a server with work that was archived and trimmed, and what the page's names stand for."""

    server: Server
    url: str
    patch: pytest.MonkeyPatch
    job: str = ""
    names: dict[str, str] = field(default_factory=dict)
    after: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What happens in the world once a line that begins so has run."""

    @property
    def queue(self) -> Queue:
        return Queue(self.server, "orders")

    def configure(self, more: str = "") -> None:
        Path("config.yaml").write_text(CONFIG.format(url=self.url, more=more))

    def begin(self) -> None:
        self.ran("apply", "--yes")
        self.work()

    def work(self) -> None:
        """Three jobs die, two of them are trimmed; five records come, four are trimmed."""
        died = [failed(self.queue, b"boom") for _ in range(3)]
        for number in range(5):
            self.server.write("XADD", self.queue.keys.stream("completions"), "*", "job", f"j{number}")
        self.ran("trim", "orders")
        self.ran("trim", "orders")  # the first one after an apply is bounded by what the plan listed
        self.ran("archive", "fold", "orders")
        self.job = died[0]

    def ran(self, *argv: str, code: int = 0) -> Ran:
        found = emq(*argv)
        assert (found.code, "Traceback" in found.err) == (code, False), (argv, found)
        return found

    def run(self, line: str) -> None:
        """One line of a page."""
        command, _, comment = line.partition(" #")
        for name in re.findall(r"\$(\w+)", command):
            command = command.replace(f"${name}", self.names[name])
        words = shlex.split(command)
        code = re.search(r"exit (\d)", comment)
        if words[0] == "emq-ops":
            self.ran(*words[1:], code=int(code[1]) if code else 0)
        elif words[0] == "export":
            self.patch.setenv(*words[1].split("=", 1))
        else:
            subprocess.run(command, shell=True, check=True, executable="/bin/sh")
        for begins, happen in self.after.items():
            if line.startswith(begins):
                happen()


@pytest.fixture
def place(valkey: Valkey, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    made = Place(server, valkey.url, monkeypatch)
    made.configure()
    return made


def lines_of(page: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", (FOLDER / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)
    found = [line.strip() for block in blocks for line in block.splitlines() if line.strip()]
    assert len(found) >= 4
    return found


def run_page(place: Place, page: str) -> None:
    for line in lines_of(page):
        place.run(line)


def box_lost(place: Place) -> None:
    place.begin()
    lost = place.ran("state", "status", "--output", "json").json
    for file in Path(".emq").glob("*.db*"):
        file.unlink()
    place.names = {"STATE": lost["state"], "JOB": place.job}
    run_page(place, "box-lost")
    assert reads.job_state(place.queue, place.job).value == "dead"
    place.work()


def server_lost(place: Place) -> None:
    place.begin()
    place.server.write("FLUSHALL")
    place.names = {"JOB": place.job}
    run_page(place, "server-lost")
    assert reads.concurrency(place.queue) == 50
    assert reads.job_state(place.queue, place.job).value == "dead"


def segment_lost(place: Place) -> None:
    place.begin()
    [segment] = (file for file in Path(".emq/bucket").rglob("*.parquet") if "completions" in str(file))
    segment.unlink()
    place.names = {"SEGMENT": str(segment.relative_to(".emq/bucket"))}
    lines = lines_of("segment-lost")
    given_up = next(at for at, line in enumerate(lines) if "archive read" in line)
    for line in lines[:given_up]:
        place.run(line)
    assert segment.exists()
    # Now it is nowhere: neither there nor here.
    segment.unlink()
    for file in Path(".emq").glob("archive.db*"):
        file.unlink()
    place.ran("archive", "reship", "orders", code=1)
    for line in lines[given_up:]:
        place.run(line)


def bucket_moved(place: Place) -> None:
    place.begin()
    place.names = {"NEW": str(Path.cwd() / "elsewhere")}
    run_page(place, "bucket-moved")
    place.work()
    shutil.rmtree(".emq/bucket")
    place.ran("archive", "verify", "orders")


def key_rotated(place: Place) -> None:
    place.patch.setenv("ARCHIVE_KEY", "the old one")
    place.configure(', sign: "${ARCHIVE_KEY}"')
    place.begin()
    place.names = {"NEW_KEY": "the new one", "OLD_KEY": "the old one"}
    for line in lines_of("key-rotated"):
        if "$HEAD" in line:
            place.names["HEAD"] = place.ran("archive", "verify", "orders", "--output", "json").json["head"]
        place.run(line)
    place.patch.setenv("ARCHIVE_KEY", "the new one")
    place.ran("archive", "verify", "orders", code=1)


def disk_full(place: Place) -> None:
    """No file may grow beyond what the local database has; the disk says that it has a MiB left."""
    place.begin()
    usage, real = namedtuple("usage", "total used free"), shutil.disk_usage
    place.patch.setattr(shutil, "disk_usage", lambda _: usage(1 << 40, (1 << 40) - (1 << 20), 1 << 20))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for _ in range(50):
        place.server.write("XADD", place.queue.keys.stream("completions"), "*", "job", "j", "big", "x" * 20_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))

    def room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        place.patch.setattr(shutil, "disk_usage", real)

    place.names = {"LARGE_FILE": "large"}
    place.after = {"rm": room}
    try:
        run_page(place, "disk-full")
    finally:
        room()
    assert len(place.ran("archive", "read", "orders", "--output", "jsonl").out.splitlines()) == 55


STORIES = {
    "box-lost": box_lost,
    "server-lost": server_lost,
    "segment-lost": segment_lost,
    "bucket-moved": bucket_moved,
    "key-rotated": key_rotated,
    "disk-full": disk_full,
}


@pytest.mark.parametrize("page", STORIES)
def test_a_runbook_does_what_it_says(place: Place, page: str) -> None:
    STORIES[page](place)


def test_the_state_moves_to_postgresql(place: Place, postgres: Postgres) -> None:
    place.begin()
    before = place.ran("runs", "ls", "--output", "json").json
    place.names = {"DATABASE_URL": postgres.fresh()}
    place.patch.setenv("DATABASE_URL", place.names["DATABASE_URL"])
    run_page(place, "state-to-postgresql")
    after = place.ran("runs", "ls", "--output", "json").json
    assert {run["id"] for run in before} <= {run["id"] for run in after}
    place.work()


def test_every_page_has_its_story() -> None:
    pages = {page.stem for page in FOLDER.glob("*.md")} - {"README"}
    assert pages == {*STORIES, "state-to-postgresql"}
    listed = set(re.findall(r"\]\(([\w-]+)\.md\)", (FOLDER / "README.md").read_text()))
    assert listed == pages
