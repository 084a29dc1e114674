"""What `make setup` says: nothing of what is as it should be, and everything else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

MAKEFILE = (Path(__file__).parents[1] / "Makefile").read_text()
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
