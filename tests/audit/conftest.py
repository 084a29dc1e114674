"""Where audit tests are at home."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test is at home in a folder of its own: a command without a config keeps its state under ``.emq`` there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
