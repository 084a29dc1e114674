"""``emq-ops flow``: from a file, and drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, flows, jobs, settle
from tests.support.cli import emq
from tests.support.keyspace import dump
from tests.support.valkey import Valkey


def test_added_shown_and_finished_by_adding_again(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    file, url = tmp_path / "flow.json", ("--url", valkey.url)
    leaf = {"payload": {"n": 1}, "queue": "mail", "policy": "ignore", "id": ids.mint()}
    root = {"id": ids.mint(), "payload": "sum", "children": [leaf, {"id": ids.mint(), "payload": "b"}]}
    file.write_text(json.dumps([root, {"payload": "x", "children": [{"payload": "y"}]}]))
    added = emq("flow", "add", "orders", file, *url)
    assert (added.code, added.out.splitlines()[0]) == (0, root["id"])
    before = dump(server)
    file.write_text(json.dumps(root))
    again = emq("flow", "add", "orders", file, *url)
    assert (again.code, "nothing was changed" in again.err) == (0, True)
    assert dump(server) == before
    orders, mail = Queue(server, "orders"), Queue(server, "mail")
    [claim] = claims.claim_batch(mail, 60_000, 1)
    assert json.loads(claim.payload) == {"n": 1}
    settle.retry(mail, claim.job, claim.token, settle.Failure(b"boom", 0, 1))
    flows.deliver(mail)
    for asked in (root["id"], leaf["id"]):
        shown = emq("flow", "show", asked, *url)
        first, *rest = shown.out.splitlines()
        assert f"orders {root['id']} awaiting_children" in first
        assert sum(f"mail {leaf['id']} ignored (dead)" in line and "boom" in line for line in rest) == 1
        assert [line.endswith("<- this one") for line in shown.out.splitlines()].count(True) == 1
    told = emq("flow", "show", root["id"], "--output", "json", *url).json
    assert {child["job"] for child in told["flow"]["children"]} == {child["id"] for child in root["children"]}  # type: ignore[index]
    assert jobs.read_row(orders, str(root["id"])) is not None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is no JSON"),
        ("[3]", "$ is no object"),
        ('{"payload": "a", "child": []}', "$ has the key 'child'"),
        ('{"payload": "a", "children": [{"policy": "fail"}]}', "$.children[0] has no payload"),
        ('{"payload": "a", "children": [{"payload": "b", "policy": "maybe"}]}', '$.children[0].policy is "maybe"'),
        ('{"payload": "a", "children": {}}', "$.children is no list"),
        ('{"payload": "a", "children": [{"payload": "b", "id": "JOBx"}]}', "JOBx"),
    ],
)
def test_what_is_no_flow(server: Server, valkey: Valkey, tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "flow.json"
    file.write_text(text)
    ran = emq("flow", "add", "orders", file, "--url", valkey.url)
    assert (ran.code, why in ran.err, dump(server)) == (4, True, {}), ran.err


def test_one_that_is_refused_is_named_and_the_others_are_added(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    file = tmp_path / "flow.json"
    file.write_text('[{"payload": "no children"}, {"payload": "r", "children": [{"payload": "c"}]}]')
    ran = emq("flow", "add", "orders", file, "--url", valkey.url)
    assert (ran.code, "has no children" in ran.err, ran.out.count("\n")) == (1, True, 1)
    plain = emq("worker", "enqueue", "orders", "x", "--url", valkey.url).out.strip()
    assert "of no flow" in emq("flow", "show", plain, "--url", valkey.url).err
