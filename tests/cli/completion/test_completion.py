"""Completion in real shells, without Python in them: commands, options, and names that the last look saw.

zsh and fish are not everywhere: `make completion` needs them. What they read is checked here in any case.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from emq_ops.cli.completion.remembered import remember
from emq_ops.cli.completion.scripts import SHELLS
from emq_ops.cli.completion.tree import entries
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import enqueue
from tests.support.cli import emq
from tests.support.valkey import Valkey

EVIL = "x$(touch evil)"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where names are remembered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache/emq-ops"


@pytest.fixture
def seen(cache: Path, server: Server, valkey: Valkey) -> Path:
    """The scripts of all shells, and a look at a server with four queues, of which one has an odd name."""
    for name in ("orders", "orders-eu", "mail", EVIL):
        enqueue.enqueue(Queue(server, name), ids.mint(), b"x")
    assert emq("--url", valkey.url, "queue", "ls").code == 0
    assert emq("--url", valkey.url, "context", "add", "prod").code == 0
    remember("runs", ["RUN0abc", "RUN0xyz"])
    for shell in SHELLS:
        made = emq("completion", shell)
        assert made.code == 0
        Path(f"emq-ops.{shell}").write_text(made.out)
    return cache


def test_names_of_the_last_look_are_kept(seen: Path) -> None:
    assert (seen / "queues").read_text().split() == ["mail", "orders", "orders-eu"]  # no shell ever reads the odd one
    assert (seen / "contexts").read_text().split() == ["prod"]
    assert (seen / "queues").stat().st_mode & 0o777 == 0o600
    remember("queues", ["later"])
    assert (seen / "queues").read_text() == "later\n"


@pytest.mark.usefixtures("cache")
def test_every_command_and_option_stands_in_every_script() -> None:
    found, anywhere = entries()
    assert len(found) > 50
    for shell in SHELLS:
        text = emq("completion", shell).out
        assert "python" not in text.lower()
        for entry in found:
            if entry.path:
                assert f"'{' '.join(entry.path[:-1])}/{entry.path[-1]}'" in text, (shell, entry.path)
            assert " ".join(entry.options) in text, (shell, entry.path)
        for option in anywhere:
            assert f"'{option}'" in text
    assert emq("completion", "tcsh").code == 4


CASES = [
    ("emq-ops queue sh", ["show"]),
    ("emq-ops queue show ord", ["orders", "orders-eu"]),
    ("emq-ops --context - queue show ma", ["mail"]),
    ("emq-ops queue ls --unh", ["--unhealthy"]),
    ("emq-ops --output js", ["json", "jsonl"]),
    ("emq-ops runs show RUN0x", ["RUN0xyz"]),
    ("emq-ops --context pr", ["prod"]),
    ("emq-ops context use pr", ["prod"]),
    ("emq-ops play health", ["health-check"]),
    ("emq-ops completion fi", ["fish"]),
    ("emq-ops queue show x", []),
]


def bash(line: str) -> list[str]:
    """What bash's own completion function offers, with no program on the PATH."""
    words = line.split(" ")
    told = (
        f"source emq-ops.bash; COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}; _emq_ops; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return _run(["bash", "--norc", "-c", told])


def fish(line: str) -> list[str]:
    """What fish's own engine offers."""
    told = f"source emq-ops.fish; complete -C '{line}'"
    return [found.split("\t")[0] for found in _run(["fish", "--no-config", "-c", told])]


def _run(argv: list[str]) -> list[str]:
    shell = shutil.which(argv[0])
    assert shell is not None, f"no {argv[0]} here"
    env = {"PATH": "/nowhere", "HOME": os.getcwd(), "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"], "TERM": "dumb"}
    ran = subprocess.run([shell, *argv[1:]], capture_output=True, text=True, env=env, timeout=60, check=False)
    assert ran.stderr == ""
    return [line for line in ran.stdout.splitlines() if line]


@pytest.mark.parametrize("offered", [bash, pytest.param(fish, marks=pytest.mark.completion)], ids=["bash", "fish"])
def test_a_shell_offers(seen: Path, offered: Callable[[str], list[str]]) -> None:
    with (seen / "queues").open("a") as names:
        names.write(f"{EVIL}\n")  # as if somebody else had written there
    for line, expected in CASES:
        assert sorted(offered(line)) == expected, line
    assert not Path("evil").exists()


class Typing:
    """An interactive shell in a terminal, in which `emq-ops` says what it was given."""

    def __init__(self, argv: list[str], setup: str) -> None:
        shell = shutil.which(argv[0])
        assert shell is not None, f"no {argv[0]} here"
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.execve(shell, argv, {**os.environ, "TERM": "xterm", "HOME": os.getcwd()})
        self.write(setup + "\n")
        self.until("ready-for-it")

    def write(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def until(self, text: str) -> str:
        """Reads until `text` was shown."""
        said, end = "", time.monotonic() + 60
        while text not in said:
            assert time.monotonic() < end, said
            if select.select([self._terminal], [], [], 0.2)[0]:
                said += os.read(self._terminal, 4096).decode(errors="replace")
        return said

    def close(self) -> None:
        os.close(self._terminal)
        os.waitpid(self._pid, 0)


SAYS = 'emq-ops() { echo GOT:$*; }; echo ready-for-""it'
IN_BASH = f"source ./emq-ops.bash; {SAYS}"
IN_ZSH = f"autoload -U compinit; compinit -u -D; source ./emq-ops.zsh; {SAYS}"


@pytest.mark.usefixtures("seen")
@pytest.mark.parametrize(
    ("argv", "setup"),
    [
        (["bash", "--norc", "-i"], IN_BASH),
        pytest.param(["zsh", "-f", "-i"], IN_ZSH, marks=pytest.mark.completion),
    ],
    ids=["bash", "zsh"],
)
def test_the_tab_key(argv: list[str], setup: str) -> None:
    shell = Typing(argv, setup)
    try:
        for typed, got in (
            ("emq-ops que\tsho\tma\t", "GOT:queue show mail"),
            ("emq-ops --context pr\truns sho\tRUN0x\t", "GOT:--context prod runs show RUN0xyz"),
            ("emq-ops --outp\tcs\tps", "GOT:--output csv ps"),
            ("emq-ops context us\tpr\t", "GOT:context use prod"),
        ):
            shell.write(typed + "\n")
            shell.until(got)
    finally:
        shell.close()
