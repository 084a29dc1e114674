"""Real daemon processes for tests: a config in a folder, ``emq-ops up`` in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.cli import Ran, emq
from tests.support.run_command import start_command
from tests.support.waiting import first_true

WAIT_SECONDS = 60.0


def wait_for(what: Callable[[], Any], seconds: float = WAIT_SECONDS, why: str = "") -> Any:
    """The first truthy answer of `what`, asked again and again; fails after `seconds`."""
    return first_true(what, seconds, lambda: f"not within {seconds} s: {why or what}", pause=0.02)


@contextlib.contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """With these variables beside those that there are."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class Site:
    """A folder with a config.yaml and whatever runs there."""

    def __init__(self, folder: Path, config: str, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.env = dict(env or {})
        self.write(config)
        self._running: list[Daemon] = []

    def write(self, config: str) -> None:
        """Replaces the config."""
        part = self.folder / "config.new"
        part.write_text(config)
        part.replace(self.folder / "config.yaml")

    def run(self, *words: str, code: int | None = 0) -> Ran:
        """A command on the folder's config, in this process; its exit code is checked (None: whatever it is)."""
        with environment(self.env):
            ran = emq("-c", str(self.folder / "config.yaml"), *words)
        assert code in (None, ran.code), f"{words}: exit {ran.code}\n{ran.out}\n{ran.err}"
        return ran

    def json(self, *words: str, code: int | None = 0) -> Any:
        """A command's JSON."""
        return self.run(*words, "--output", "json", code=code).json

    def up(
        self, *words: str, ready: bool = True, verbose: bool = True, start: Callable[..., Any] = start_command
    ) -> Daemon:
        """A daemon in the folder, ready or not yet. `start`: on another host than this."""
        daemon = Daemon(self, len(self._running), (*(["--verbose"] if verbose else []), *words), start)
        self._running.append(daemon)
        if ready:
            daemon.wait_ready()
        return daemon

    def close(self) -> None:
        """Kills what still runs."""
        for daemon in self._running:
            daemon.kill()


class Daemon:
    """One ``emq-ops up`` process, `process`."""

    def __init__(self, site: Site, number: int, words: tuple[str, ...], start: Callable[..., Any]) -> None:
        self.ready_file = site.folder / f"ready{number}"
        self.log = site.folder / f"daemon{number}.log"
        self.log.touch()
        argv = ("up", "--log", "json", "--ready-file", str(self.ready_file), *words)
        self.process = start(*argv, cwd=site.folder, out=self.log, env={**os.environ, **site.env})

    def wait_ready(self) -> None:
        """Until it runs, or ended with what it said."""
        wait_for(lambda: self.ready_file.exists() or self.process.poll() is not None, why="ready")
        assert self.process.poll() is None, self.log.read_text()

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """What it logged so far."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return [e for e in found if name is None or e["event"] == name]

    def signal(self, number: int) -> None:
        self.process.signal(number)

    def stop(self, seconds: float = 10.0) -> None:
        """SIGTERM; it must end with 0 in time."""
        self.signal(signal.SIGTERM)
        assert self.process.wait(seconds) == 0, self.log.read_text()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()


@contextlib.contextmanager
def site(folder: Path, config: str, env: dict[str, str] | None = None) -> Iterator[Site]:
    """A site whose processes are gone at the end."""
    made = Site(folder, config, env)
    try:
        yield made
    finally:
        made.close()
