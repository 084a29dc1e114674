"""Whatever is wrong is one clear line with its place, and nothing is done."""

from __future__ import annotations

from typing import Any

import pytest

from emq_ops.ledger import runs
from emq_ops.playbook.errors import PlaybookError
from tests.playbook.bench import Bench
from tests.playbook.test_cases import load, spelled


@pytest.mark.parametrize("case", load("bad"))
def test_refused(bench: Bench, case: dict[str, Any]) -> None:
    bench.put("orders", {"pending": ["A"], "dead": {"B": "x"}})
    before = bench.keyspace()
    for name, text in case.get("files", {}).items():
        bench.write(text, name)
    for name, target in case.get("links", {}).items():
        (bench.folder / name).parent.mkdir(exist_ok=True)
        (bench.folder / name).symlink_to(target)
    repeat = case.get("playbook_repeat")
    text = repeat["text"] * repeat["times"] + repeat["shut"] * repeat["times"] + "\n" if repeat else case["playbook"]
    text = spelled(
        text.replace("@DEEP", "(" * 5000 + "1" + ")" * 5000)
        .replace("@LONG", "x" * 5000)
        .replace("@JOINED", " ~ ".join(["big"] * 1000))
    )
    with pytest.raises(PlaybookError) as caught:
        bench.play(text, **case.get("options", {}))
    line = str(caught.value)
    assert case["error"] in line
    assert "\n" not in line
    if "at" in case:
        assert str(caught.value.where).endswith(case["at"])
    assert bench.keyspace() == before
    assert runs.latest(bench.ledger) == []
