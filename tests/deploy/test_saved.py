"""C11: a saved plan is refused when the YAML, the revision or a fact moved; other traffic does not spoil it."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emq_ops.deploy.saved import StaleError, key_of, read
from emq_ops.ledger import bounds
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, enqueue, jobs, settle
from tests.deploy.conftest import Desk

LANE = "GRP0SSBKAh61tG"
CONFIG = f"""\
archive: {{}}
queues:
  mail:
    dead: {{keep: 10, max_age: 300d}}
    settings: {{lanes: {{{LANE}: {{limit: 2}}}}}}
"""


def kill(q: Queue, count: int) -> list[str]:
    """`count` jobs that die by their handler's error."""
    dead = [ids.mint() for _ in range(count)]
    for job in dead:
        enqueue.enqueue(q, job, b"x")
        claim = claims.claim(q, 60_000)
        assert claim is not None
        settle.retry(q, claim.job, claim.token, settle.Failure(b"boom", delay_ms=0, max_attempts=1))
    return dead


@pytest.fixture
def saved(light_desk: Desk, server: Server, tmp_path: Path) -> Path:
    """100 dead, keep 10: a plan to remove 90."""
    kill(Queue(server, "mail"), 100)
    proposal = light_desk.propose(CONFIG)
    [step] = [s for s in proposal.plan.steps if s.kind == "dead"]
    assert (step.effect["dead"], step.effect["remove"]) == (100, 90)
    light_desk.session.save(proposal, tmp_path / "plan.json")
    return tmp_path / "plan.json"


def applied(desk: Desk, saved: Path, text: str = CONFIG) -> int | None:
    return desk.session.apply(desk.session.load(saved, desk.config(text))).revision


def listed(saved: Path) -> set[str]:
    return set(read(saved).facts["mail/dead"]["ids"])


def test_c11_fifty_requeued_and_twenty_dead(light_desk: Desk, saved: Path) -> None:
    q = Queue(light_desk.server, "mail")
    for job in sorted(listed(saved))[:50]:
        jobs.requeue(q, job)
    while (claim := claims.claim(q, 60_000)) is not None:
        settle.complete(q, claim.job, claim.token)
    kill(q, 20)
    with pytest.raises(StaleError) as caught:
        applied(light_desk, saved)
    said = str(caught.value)
    assert "planned to remove 90 of 100 dead, now it would remove 60 of 70, 20 of them not in the plan" in said
    assert light_desk.session.current() is None
    assert light_desk.server.read("ZCARD", q.keys.dead) == 70
    fresh = light_desk.propose(CONFIG).plan
    assert [s.effect["remove"] for s in fresh.steps if s.kind == "dead"] == [60]


def test_c11_twice(light_desk: Desk, saved: Path) -> None:
    assert applied(light_desk, saved) == 1
    with pytest.raises(StaleError, match="starts from revision none, now 1 is in force"):
        applied(light_desk, saved)


def test_c11_the_yaml_was_edited(light_desk: Desk, saved: Path) -> None:
    with pytest.raises(StaleError, match="the YAML was edited"):
        applied(light_desk, saved, CONFIG + "# only a remark\n")
    assert light_desk.session.current() is None


def test_a_lane_limit_was_changed(light_desk: Desk, saved: Path) -> None:
    control.limit_lane(Queue(light_desk.server, "mail"), LANE, 5)
    with pytest.raises(StaleError, match=f"mail/lanes/{LANE}/limit was unset on the server, now it is 5"):
        applied(light_desk, saved)


def test_one_new_victim_is_enough(light_desk: Desk, saved: Path) -> None:
    kill(Queue(light_desk.server, "mail"), 1)
    with pytest.raises(StaleError, match="planned to remove 90 of 100 dead, now it would remove 91 of 101"):
        applied(light_desk, saved)


def test_other_traffic_does_not_spoil_it_and_the_list_bounds_the_first_pass(light_desk: Desk, saved: Path) -> None:
    q = Queue(light_desk.server, "mail")
    before = listed(saved)
    for job in sorted(before)[:7]:
        jobs.requeue(q, job)
    for _ in range(30):
        enqueue.enqueue(q, ids.mint(), b"x")
    control.pause_queue(q)
    assert applied(light_desk, saved) == 1
    with light_desk.ledger.read() as connection:
        bound = bounds.of(connection, "mail")
    assert bound is not None
    assert bound.ids < before
    assert len(bound.ids) == 83


def test_growing_older_is_no_news(light_desk: Desk, server: Server, tmp_path: Path) -> None:
    """A job that passes max_age between plan and apply was no victim then, and is none of this plan's."""
    config = CONFIG.replace("keep: 10, max_age: 300d", "max_age: 2s, age_by: minted")
    q = Queue(server, "mail")
    now = server.now_ms("mail")
    old, young = ids.min_id("JOB", now - 60_000), ids.min_id("JOB", now - 1_000)
    for job in (old, young):
        server.write("HSET", q.keys.row(job), "state", "dead", "attempts", "1", "payload", "x")
        server.write("ZADD", q.keys.dead, 0, job)
    proposal = light_desk.propose(config)
    light_desk.session.save(proposal, tmp_path / "plan.json")
    assert listed(tmp_path / "plan.json") == {old}
    while server.now_ms("mail") < now + 1_500:  # until the young one is older than 2 s by the server's clock
        pass
    assert {v for s in light_desk.propose(config).plan.steps for v in s.effect.get("ids", [])} == {old, young}
    assert applied(light_desk, tmp_path / "plan.json", config) == 1
    with light_desk.ledger.read() as connection:
        bound = bounds.of(connection, "mail")
    assert bound is not None
    assert bound.ids == {old}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace('"keep"', '"keeq"', 1), "the saved plan was edited"),
        (lambda text: text[:-20], "no saved plan"),
        (lambda text: "{}", "no saved plan"),
        (lambda text: text.replace('"version": 2', '"version": 9', 1), "a saved plan of version 9"),
    ],
)
def test_a_file_that_is_no_plan(change: object, says: str, light_desk: Desk, saved: Path) -> None:
    saved.write_text(change(saved.read_text()))  # type: ignore[operator]  # one of the functions above
    with pytest.raises(BadInputError, match=says):
        light_desk.session.load(saved, light_desk.config(CONFIG))


def test_a_plan_of_another_state(light_desk: Desk, saved: Path, server: Server, tmp_path: Path) -> None:
    from emq_ops.ledger.ledger import open_ledger

    with open_ledger(f"sqlite:///{tmp_path}/other.db") as ledger:
        other = Desk(server, ledger, tmp_path)
        with pytest.raises(StaleError, match="it was made for state"):
            applied(other, saved)


def _edited(saved: Path, edit: Callable[[dict[str, Any]], None], key: bytes | None = None) -> None:
    """A file as somebody writes it who knows how a plain seal is made."""
    body = json.loads(saved.read_text())
    body.pop("seal")
    edit(body)
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    seal = hashlib.sha256(text).hexdigest() if key is None else hmac.new(key, text, hashlib.sha256).hexdigest()
    saved.write_text(json.dumps({**body, "seal": seal}))


RATED = CONFIG.replace("settings: {", "settings: {rate: 5, ")


@pytest.fixture
def drifted(light_desk: Desk, tmp_path: Path) -> Path:
    """A plan that changes the trim alone; a live rate was moved to 9 by hand, which it shows and leaves."""
    assert light_desk.apply(RATED) == 1
    control.set_rate(Queue(light_desk.server, "mail"), 9)
    light_desk.session.save(light_desk.propose(RATED.replace("keep: 10", "keep: 20")), tmp_path / "plan.json")
    return tmp_path / "plan.json"


def _rate(desk: Desk) -> object:
    return desk.server.read("HGET", Queue(desk.server, "mail").keys.meta, "max")


def test_a_revert_that_it_does_not_show_is_not_done(light_desk: Desk, drifted: Path) -> None:
    def add(body: dict[str, Any]) -> None:
        body["revert"] = ["all"]
        body.setdefault("facts", {})["mail/rate"] = {"live": 9}  # what the steps rest on, as a plan with reverts has it

    before = _rate(light_desk)
    _edited(drifted, add)
    with pytest.raises(StaleError, match="has something to write now"):
        applied(light_desk, drifted, RATED.replace("keep: 10", "keep: 20"))
    assert _rate(light_desk) == before


@pytest.mark.parametrize("what", ["a step less", "another value", "another order of facts"])
def test_steps_are_what_it_does(light_desk: Desk, drifted: Path, what: str) -> None:
    def edit(body: dict[str, Any]) -> None:
        [step] = [one for one in body["plan"]["steps"] if one["kind"] == "dead"]
        if what == "a step less":
            body["plan"]["steps"].remove(step)
        elif what == "another value":
            step["fields"][0]["after"] = 10
        else:
            body["plan"]["steps"] = {"x": 1}

    _edited(drifted, edit)
    with pytest.raises((StaleError, BadInputError)):
        applied(light_desk, drifted, RATED.replace("keep: 10", "keep: 20"))


def test_a_signed_plan_is_applied_by_its_key_alone(light_desk: Desk, tmp_path: Path) -> None:
    light_desk.env["PLAN_KEY"] = "a key of ours"
    signed = CONFIG + "plan: {sign: '${PLAN_KEY}'}\n"
    loaded, file = light_desk.config(signed), tmp_path / "plan.json"
    light_desk.session.save(light_desk.session.propose(loaded), file, key_of(loaded))
    whole = file.read_text()
    assert "a key of ours" not in whole

    def harmless(body: dict[str, Any]) -> None:
        body["plan"]["warnings"] = ["nothing to see"]

    def unsigned(body: dict[str, Any]) -> None:
        body["signed"] = False

    for edit, said in ((harmless, "was edited, or signed with another key"), (unsigned, "is not signed")):
        _edited(file, edit)
        with pytest.raises(BadInputError, match=said):
            applied(light_desk, file, signed)
        file.write_text(whole)
    light_desk.env["PLAN_KEY"] = "a stranger's"
    with pytest.raises(BadInputError, match="signed with another key"):
        applied(light_desk, file, signed)
    with pytest.raises(BadInputError, match="is signed, and there is no key"):
        applied(light_desk, file)
    light_desk.env["PLAN_KEY"] = "a key of ours"
    assert applied(light_desk, file, signed) == 1
