"""What the demo did, told from the ledger and the archive; and what to type next."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from emq_ops.cli.demo.stage import QUEUES, Stage
from emq_ops.cli.demo.view import DemoTotals
from emq_ops.ledger import deaths
from emq_ops.ledger.ledger import open_ledger
from emq_ops.passes.acts.errortext import normalise
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.reads import counts


def _why(stage: Stage) -> Counter[tuple[str, str]]:
    """How many died of what: cause and normalised error."""
    found: Counter[tuple[str, str]] = Counter()
    with open_ledger(f"sqlite:///{stage.folder}/.emq/state.db") as ledger:
        for death in deaths.iterate(ledger, with_rows=False):
            found[(death.cause, normalise(death.last_error or b""))] += 1
    return found


def summary(stage: Stage, server: Server, tally: DemoTotals) -> Iterator[str]:
    """The lines."""
    yield ""
    total = {name: sum(tally.of(queue, name) for queue in QUEUES) for name in (
        "sweep.recovered", "sweep.dead", "trim.removed", "trim.archived", "archive.folded", "archive.trimmed"
    )}  # fmt: skip
    completed = sum(counts(Queue(server, queue)).completed for queue in QUEUES)
    yield f"completed      {completed}"
    swept, buried = total["sweep.recovered"], total["sweep.dead"]
    yield f"swept          {swept} leases recovered, {buried} dead-lettered by the sweep"
    why = _why(stage)
    yield f"dead-lettered  {sum(why.values())}"
    for (cause, error), count in why.most_common(5):
        yield f"  {count:>4}  {cause}: {error[:90]}" if error else f"  {count:>4}  {cause}"
    yield f"trimmed        {total['trim.removed']} dead jobs, {total['trim.archived']} of them archived first"
    yield f"archived       {total['archive.folded']} records; {total['archive.trimmed']} of them left the streams since"
    files = sorted((stage.folder / ".emq" / "bucket").rglob("*.parquet"))
    yield f"Parquet        {len(files)} segments, such as"
    for path in files[:2]:
        yield f"  {_short(path)}"
    tool = "emq-ops " + " ".join(f"-c {_short(path)}" for path in stage.files)
    yield ""
    yield "Next:"
    yield f"  {tool} audit dead"
    yield f"  {tool} archive status orders"
    yield f"  {tool} archive query orders completions 'select outcome, count(*) from records group by 1'"
    yield f"  {tool} runs ls"


def _short(path: Path) -> str:
    return os.path.relpath(path)
