"""`examples/pull-requests/plan.sh`: a branch's plan, by a job that has secrets it should not have."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.collector import Collector

SCRIPT = Path(__file__).parents[2] / "examples" / "pull-requests" / "plan.sh"


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def test_a_branch_learns_nothing_and_reaches_nobody(tmp_path: Path, collector: Collector) -> None:
    def planned(text: str, **env: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "config.yaml").write_text(text)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        env = {"PATH": path, "HOME": str(tmp_path), "EMQ_PW": "tok-3c1f", "DEPLOY_TOKEN": "tok-9d2e", **env}
        ended = subprocess.run([SCRIPT], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        assert collector.connections == 0
        assert "tok-" not in ended.stdout + ended.stderr
        assert os.listdir(tmp_path) == ["config.yaml"]
        return ended

    said = f'server: {{url: "redis://127.0.0.1:{collector.port}", password: "${{NAME}}"}}\nqueues: {{orders: {{}}, a: '
    text = said + "{stalled: {every: 5s}}}\n"
    good = planned(text.replace("NAME", "EMQ_PW"))
    assert good.returncode == 0, good.stderr
    assert good.stdout.startswith("### emq-ops plan: 2 to add")
    assert "password: ${EMQ\\_PW}" in good.stdout
    bad = planned(text.replace("NAME", "DEPLOY_TOKEN"))
    assert (bad.returncode, bad.stdout) == (4, "")
    assert "the environment variable DEPLOY_TOKEN may not be read here" in bad.stderr
    strange = planned(text.replace("NAME", "EMQ_PW"), EMQ_OPS_HOST_ALLOW="*.ours.example")
    assert (strange.returncode, strange.stdout) == (4, "")
    assert f"the host '127.0.0.1:{collector.port}' may not be asked" in strange.stderr
