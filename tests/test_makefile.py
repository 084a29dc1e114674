"""What `make setup` says: nothing of what is as it should be, and everything else. Which part of the soak CI runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
SAY = "from setuptools.warnings import InformationOnly; InformationOnly.emit({!r}, 'Please be careful.')"


def said(text: str, env: dict[str, str]) -> str:
    """What setuptools' own way of saying `text` comes to, on stderr."""
    run = subprocess.run(
        [sys.executable, "-c", SAY.format(text)], env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    return run.stderr


def test_setup_is_quiet_of_the_editable_installation_alone() -> None:
    found = re.search(r"^QUIET := (PYTHONWARNINGS)='(.*)'$", MAKEFILE, re.MULTILINE)
    assert found is not None
    assert re.search(r"^\t\$\(QUIET\) .* -e ", MAKEFILE, re.MULTILINE)
    env = {found[1]: found[2]}
    assert "Please be careful" in said("Editable installation.", {"PYTHONWARNINGS": "default"})
    assert said("Editable installation.", env) == ""
    assert "Please be careful" in said("Something else.", env)


def test_ci_comes_round_to_each_part_of_the_soak_at_any_fixed_hour_of_a_day_or_week() -> None:
    text = (ROOT / ".ci/run").read_text()
    found = re.search(r"^parts=(\d+)\npart=\"\$\(\((.*)\)\)/\$parts\"$", text, re.MULTILINE)
    assert found is not None
    parts, sum_ = int(found[1]), found[2].replace("$(date +%s)", "{now}").replace(" / ", " // ")
    for every in (1, 24, 24 * 7):  # hours
        taken = {eval(sum_.format(now=1_800_000_000 + run * every * 3600), {"parts": parts}) for run in range(parts)}
        assert taken == set(range(1, parts + 1))
