"""Dependencies: bounded, each with its reason, and locked by hashes to the versions that the tests run with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("embedded", "postgres", "query", "http", "alerts")


def _pins(name: str) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9_.\-]+)(?:\[.*\])?==([^\s;\\]+)", (ROOT / name).read_text(), re.MULTILINE)
    return {canonicalize_name(package): version for package, version in found}


def test_the_lock_holds_what_is_installed_by_hash_and_by_no_address() -> None:
    text, locked, tried = (ROOT / "requirements.lock").read_text(), _pins("requirements.lock"), _pins("constraints.txt")
    assert {name: tried.get(name) for name in locked} == locked
    wanted = [*PROJECT["dependencies"], *(one for extra in EXTRAS for one in PROJECT["optional-dependencies"][extra])]
    for said in wanted:
        one = Requirement(said)
        assert one.specifier.contains(locked[canonicalize_name(one.name)]), said
    for entry in re.split(r"\n(?=\S)", text.strip()):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
    assert not re.search(r"://|^--|/opt|/home|/work", text, re.MULTILINE)


def test_each_dependency_is_bounded_and_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    by_date = {"regex", "tzdata"}
    for said in PROJECT["dependencies"]:
        one = Requirement(said)
        operators = {spec.operator for spec in one.specifier}
        assert ">=" in operators, said
        assert "<" in operators or one.name in by_date, said
        [line] = [line for line in text.splitlines() if line.strip().startswith(f'"{said}"')]
        assert re.search(r"# \w.{5,}", line), line
    assert {one.split("[")[0] for one in PROJECT["optional-dependencies"]["all"]} == {"emq-ops"}
    assert all(extra in PROJECT["optional-dependencies"]["all"][0] for extra in EXTRAS)


def test_the_container_is_made_of_what_is_there_by_hashes_and_runs_as_nobody() -> None:
    """No container is built here: what it is made of is looked at."""
    text = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    made = re.search(r"^release:.*?\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert made is not None
    for source in [said.split()[0] for verb, said in steps if verb == "COPY"]:
        if source.startswith("dist/"):
            assert "-m build --quiet --outdir dist ." in made[1]
        else:
            assert (ROOT / source).is_file(), source
    base, run, user = (next(said for verb, said in steps if verb == name) for name in ("FROM", "RUN", "USER"))
    assert re.fullmatch(r"python:3\.1[1-9]-slim", base)
    installs = re.findall(r"pip install ([^&]*)", run)
    assert all("--require-hashes" in one or {"--no-deps", "--no-index"} <= set(one.split()) for one in installs)
    assert len(installs) == 2
    assert f"--uid {user} " in run
    assert int(user) > 0
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert f'["{next(iter(scripts))}"]' in [said for verb, said in steps if verb == "ENTRYPOINT"]
