"""Every command of the README works, in its order, in a fresh folder with the config that ships."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emq_ops.protocol.server import connect
from tests.support.cli import emq
from tests.support.keyspace import recorded
from tests.support.valkey import Valkey

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CHANGES_PENDING = ("plan", "drift")


def commands() -> list[str]:
    """The lines of the shell blocks, without their comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the config that ships, whose user has nothing else."""
    shutil.copy(ROOT / "config.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EMQ_URL", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.long
def test_every_command_of_the_readme_works(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = json.loads(recorded("transitions.json").read_text())
    (home / "transitions.json").write_text(json.dumps({**recordings, "vectors": recordings["vectors"][:3]}))
    found = commands()
    assert len(found) > 25
    with connect("embedded"):  # one user for the whole of it, as a shell with `emq-ops up` beside it would be
        for line in found:
            argv, stdin, out = parsed(line)
            with (home / stdin if stdin else Path(os.devnull)).open() as given, monkeypatch.context() as patch:
                patch.setattr(sys, "stdin", given)
                done = emq(*argv)
            allowed = (0, 2) if argv[0] in CHANGES_PENDING else (0,)
            assert done.code in allowed, f"{line}: exit {done.code}\n{done.out}\n{done.err}"
            assert "Traceback" not in done.err
            if out:
                (home / out).write_text(done.out)


def parsed(line: str) -> tuple[list[str], str | None, str | None]:
    """What a shell makes of a line: the command's arguments, the file that it reads, the file that it writes."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    tool, *words = lexer
    assert tool == "emq-ops", line
    files = {sign: words[words.index(sign) + 1] for sign in "<>" if sign in words}
    for sign, name in files.items():
        words.remove(sign)
        words.remove(name)
    assert not {"|", ";", "&", "&&", "||", "(", ")", ">>"} & {*words}, f"{line}: only a shell can run this"
    return words, files.get("<"), files.get(">")


HANDLER = 'def handle(job):\n    raise RuntimeError("HTTP 503 from payments, request 8127")\n'
_VARIES = re.compile(r"(RUN|JOB|EVT)[0-9A-Za-z]{11}|\d+ (?:ms|s)\b|\s+")


def transcript() -> list[tuple[str, list[str]]]:
    """Each command of the transcripts, and the lines that it prints (others may stand between them)."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", README, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ emq-ops "):
                found.append((line.removeprefix("$ emq-ops "), []))
            else:
                found[-1][1].append(line)
    return found


def _told(line: str) -> str:
    """A line without what differs from run to run."""
    return _VARIES.sub(lambda match: " " if match[0].isspace() else "*", line).strip()


@pytest.mark.long
def test_the_transcripts_of_the_readme_are_true(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "boom.py").write_text(HANDLER)
    with Valkey() as valkey:
        monkeypatch.setenv("EMQ_URL", valkey.url)

        def run(*argv: str) -> list[str]:
            done = emq(*argv)
            assert done.code in (0, 2), f"{argv}: exit {done.code}\n{done.err}"
            return [*done.err.splitlines(), *done.out.splitlines()]

        for payload in "123":
            run("worker", "enqueue", "orders", payload)
        run("worker", "run", "boom:handle", "--queue", "orders", "--max-attempts", "1", "--until-idle")
        run("apply", "--yes")
        run("sweep", "orders")
        runs: dict[str, str] = {}
        steps = transcript()
        assert len(steps) > 12
        for command, expected in steps:
            told = run(*[runs.get(word, word) for word in shlex.split(command)])
            rest = list(told)  # words and data come by two streams
            for line in expected:
                found = next((one for one in rest if _told(line) in _told(one)), None)
                assert found is not None, f"{command}: no line {line!r} in\n" + "\n".join(told)
                rest.remove(found)
                ids = [re.findall("RUN[0-9A-Za-z]{11}", text) for text in (line, found)]
                runs.update(zip(*ids, strict=False))


@pytest.mark.parametrize("target", sorted(set(re.findall(r"(?:`|^)make (\w+)", README, re.MULTILINE))))
def test_every_make_target_of_the_readme_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_every_file_that_the_readme_links_exists() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / link).exists(), link


def test_every_noun_is_in_the_readme() -> None:
    from emq_ops.cli.commands import COMMANDS

    nouns = {command.split()[0] for command in COMMANDS} - {"demo"}
    assert [noun for noun in sorted(nouns) if f"`{noun}`" not in README and f"`{noun} " not in README] == []


def fenced(language: str, has: str) -> str:
    """The block of that language that has the words in it."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    [found] = [block for block in blocks if has in block]
    return str(found)


def test_the_readmes_job_and_playbook_work(tmp_path: Path) -> None:
    example = fenced("python", "import Producer")
    (tmp_path / "try.py").write_text(f"{example}    print(producer.repeatables('orders'))\n")
    (tmp_path / "mine.yaml").write_text(fenced("yaml", "register:").replace("mail*", "ord*").replace("100", "0"))
    env = {k: v for k, v in os.environ.items() if k != "EMQ_URL"} | {"HOME": str(tmp_path)}

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *argv], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    assert (done := run("try.py")).stdout == "[]\n", done.stderr
    played = run("-m", "emq_ops.cli.main", "--url", "embedded", "play", "mine.yaml")
    assert played.returncode == 0, played.stderr + played.stdout
    assert "skipping: [orders] => when: found.count > bound" in played.stdout
