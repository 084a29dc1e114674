"""Who runs a playbook is told by the state's own clock, whatever the hosts' say."""

from __future__ import annotations

import json
import time

import pytest
from sqlalchemy import select, update

from emq_ops.ledger.ledger import open_ledger
from emq_ops.playbook.store import records
from emq_ops.playbook.store.records import GONE_MS
from emq_ops.playbook.store.schema import play_runs
from emq_ops.protocol.errors import BadInputError
from tests.support.postgres import Postgres

HOURS_NS = 5 * 3600 * 1_000_000_000


@pytest.mark.parametrize("shift", [-HOURS_NS, HOURS_NS], ids=["behind", "ahead"])
def test_a_run_of_another_host_is_taken_over_when_it_is_silent_and_not_before(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    with open_ledger(str(postgres.fresh())) as ledger:
        run = records.begin(ledger, "p", "0", {}, {}).run
        with ledger.write() as connection:
            owner = json.loads(connection.execute(select(play_runs.c.owner)).scalar_one())
            connection.execute(update(play_runs).values(owner=json.dumps({**owner, "machine": "another"})))
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + shift)
        with pytest.raises(BadInputError, match="is still being run"):
            records.claim(ledger, run, lambda _run: (set(), set()))
        with ledger.write() as connection:
            connection.execute(update(play_runs).values(beat_ms=play_runs.c.beat_ms - GONE_MS - 1000))
        assert records.claim(ledger, run, lambda _run: (set(), set())).claim == 2
