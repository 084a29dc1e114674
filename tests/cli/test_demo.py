"""The demo's summary: its figures are those of the ledger."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emq_ops.cli.main import main
from emq_ops.ledger import runs
from emq_ops.ledger.ledger import open_ledger


@pytest.mark.soak
def test_the_summary_tells_what_the_passes_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "demo"
    assert main(["demo", "--seconds", "8", "--folder", str(folder)]) == 0
    out = capsys.readouterr().out
    with open_ledger(f"sqlite:///{folder}/.emq/state.db") as ledger:
        ended = runs.latest(ledger, limit=1000, idle=False)

    def total(kind: str, name: str) -> int:
        return sum(run.counts.get(name, 0) for run in ended if run.kind == kind)

    removed, folded = total("trim", "removed"), total("archive", "folded")
    assert removed > 0
    assert folded > 0
    assert re.search(rf"^trimmed +{removed} dead jobs, {total('trim', 'archived')} of them", out, re.MULTILINE)
    assert re.search(rf"^archived +{folded} records", out, re.MULTILINE)
