"""`up --apply` on a queue that is alive: its plan may be stale before it is applied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emq_ops.cli.main import main
from emq_ops.cli.up import PLANS
from emq_ops.deploy.deployment import Deployment
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.passing import dead_of, kill_row
from tests.support.valkey import Valkey


@pytest.mark.parametrize("times", [PLANS - 1, PLANS])
def test_a_plan_that_goes_stale_is_made_anew(
    valkey: Valkey,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    times: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(
        f"server: {{url: '{valkey.url}'}}\nstate: {{url: 'sqlite:///s.db'}}\n"
        "queues: {q: {dead: {every: 1s, keep: 1}}}\n"
    )
    q, proposed, planned = Queue(server, "q"), Deployment.propose, []
    kill_row(q, 1)

    def propose(self: Deployment, *words: Any, **more: Any) -> Any:
        made = proposed(self, *words, **more)
        if len(planned) < times:
            planned.append(made)
            kill_row(q, 1)  # one more dies between plan and apply
        return made

    monkeypatch.setattr(Deployment, "propose", propose)
    code = main(["up", "--apply", "--allow-loss", "--once"])
    assert len(planned) == times
    assert (code, len(dead_of(q))) == ((0, 1) if times < PLANS else (1, 1 + PLANS))
    assert ("the plan is stale" in capsys.readouterr().err) == (times == PLANS)


def test_the_first_passes_on_an_embedded_server_tell_of_no_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text("server: {url: 'embedded:srv'}\nqueues: {orders: {stalled: {every: 30s}}}\n")
    assert main(["apply", "--yes"]) == 0  # the last user of the server, which ends with it
    capsys.readouterr()
    assert main(["up", "--once"]) == 0
    told = capsys.readouterr()
    assert "orders" in told.out
    assert "interruption_seen" not in told.err + told.out
