"""A plan kept in a file, and whether the world still is as it says.

The file holds the plan, with the facts that its steps rest on, and the document that it leads to; references stand in
it as written. What is applied is the plan made anew, and only where its steps are those of the file: so it does what it
shows, whatever else was written into the file. It is refused when the YAML, the revision or such a fact moved; other
traffic does not spoil it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emq_ops.config.loader import Loaded
from emq_ops.deploy.document import Document
from emq_ops.deploy.model import Plan, Proposal
from emq_ops.deploy.render import as_json, step_json, value
from emq_ops.policy.references import ReferenceFault, names_of, resolve
from emq_ops.protocol import files
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.masking import remember

FORMAT, VERSION = "emq-ops/saved-plan", 2
MOST_BYTES = 256 << 20


class StaleError(EmqError):
    """The world moved since the plan was made. `moved`: what, a line each."""

    def __init__(self, moved: list[str]) -> None:
        super().__init__(f"the plan is stale: {'; '.join(moved)}", fix="plan again; nothing was changed")
        self.moved = tuple(moved)


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved plan. `files`: path and SHA-256 of each config file; `steps`: as `render.step_json` has them; `state`:
    whom it is for, empty where its state was not made yet."""

    kind: str
    base: int | None
    document: Document
    files: list[dict[str, str]]
    steps: list[dict[str, Any]]
    state: str
    revert: tuple[str, ...]
    target: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, Any]:
        """What each step rests on, by address."""
        return _facts(self.steps)


def facts_of(plan: Plan) -> dict[str, Any]:
    """The facts that the steps of `plan` rest on: the live value that a write starts from, the victims of a trim."""
    return _facts(steps_of(plan))


def steps_of(plan: Plan) -> list[dict[str, Any]]:
    """The steps of `plan` as a file has them."""
    steps: list[dict[str, Any]] = json.loads(json.dumps([step_json(step) for step in plan.steps]))
    return steps


def _facts(steps: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for step in steps:
        if step["write"] is not None:
            out[step["address"]] = {"live": step["write"]["expect"]}
        elif "ids" in step["effect"]:
            effect = step["effect"]
            out[step["address"]] = {"queue": step["queue"], **{k: effect[k] for k in ("dead", "ids", "as_of")}}
    return out


def moments(facts: dict[str, Any]) -> dict[str, int]:
    """When each dead set was looked at: queue -> server time, ms."""
    return {fact["queue"]: fact["as_of"] for fact in facts.values() if fact.get("as_of")}


def key_of(loaded: Loaded) -> bytes | None:
    """The key of ``plan.sign``, None without one. Raises BadInputError where its variable is not set or empty."""
    said = loaded.config.plan.sign
    if said is None:
        return None
    try:
        key = resolve(said, loaded.env)
    except ReferenceFault as problem:
        raise BadInputError(str(problem), where="plan.sign", fix=problem.fix) from None
    if not key:
        raise BadInputError("the key is empty", where="plan.sign", fix="set its variable, or take it out")
    remember(key, *names_of(said))
    return key.encode("utf-8", "surrogatepass")


def save(path: Path, proposal: Proposal, *, server: str, state: str, key: bytes | None = None) -> None:
    """Writes a proposal, signed where there is a `key`; a reader never sees half of it. Raises BadInputError where the
    path can't be written."""
    plan = proposal.plan
    body: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "kind": plan.kind,
        "base_revision": plan.base,
        "server": server,
        "state": state,
        "files": proposal.files,
        "revert": list(proposal.revert),
        "target": list(proposal.target),
        "document": proposal.document.compact,
        "signed": key is not None,
        "plan": as_json(plan),
    }
    body["seal"] = _seal(body, key)
    with files.written(path) as file:
        file.write(json.dumps(body, indent=1) + "\n")


def read(path: Path, key: bytes | None = None) -> Saved:
    """Back from `save`. Raises BadInputError for a file that is none, was changed, or is not signed with `key`."""
    where = str(path)
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        body = json.loads(text) if len(text) <= MOST_BYTES else None
    except OSError as fault:
        raise BadInputError(f"can't read the plan: {fault.strerror}", where=where) from None
    except (ValueError, RecursionError):
        raise BadInputError("no saved plan", where=where, fix="emq-ops plan --save FILE makes one") from None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise BadInputError("no saved plan", where=where, fix="emq-ops plan --save FILE makes one")
    if body.get("version") != VERSION:
        raise BadInputError(f"a saved plan of version {body.get('version')}", where=where, fix="plan again")
    if bool(body.get("signed")) != (key is not None):
        what = "is not signed" if key else "is signed, and there is no key"
        fix = "plan again, with this config" if key else "plan: {sign: ${KEY}} in the config"
        raise BadInputError(f"the saved plan {what}", where=where, fix=fix)
    seal = body.pop("seal", None)
    if not isinstance(seal, str) or not hmac.compare_digest(seal.encode(), _seal(body, key).encode()):
        what = "was edited, or signed with another key" if key else "was edited"
        raise BadInputError(f"the saved plan {what}", where=where, fix="plan again")
    try:
        moved_steps(body["plan"]["steps"], [])
        return Saved(
            body["kind"],
            body["base_revision"],
            Document.from_compact(body["document"]),
            body["files"],
            body["plan"]["steps"],
            body["state"],
            tuple(body["revert"]),
            tuple(body.get("target") or ()),
        )
    except (KeyError, TypeError, AttributeError):  # nobody's seal but a stranger's
        raise BadInputError("no saved plan", where=where, fix="plan again") from None


def _seal(body: dict[str, Any], key: bytes | None) -> str:
    said = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(said).hexdigest() if key is None else hmac.new(key, said, hashlib.sha256).hexdigest()


def compare(saved: Saved, now: Proposal, state: str) -> None:
    """Raises StaleError where what is proposed `now` rests on other facts than the saved one. A trim that would remove
    fewer of the listed jobs is no other fact; one that would remove a job that is not listed is."""
    moved: list[str] = []
    if saved.state not in (state, ""):
        moved.append(f"it was made for state {saved.state}, this is {state}")
    if saved.base != now.plan.base:
        moved.append(f"it starts from revision {_revision(saved.base)}, now {_revision(now.plan.base)} is in force")
    if [f["sha256"] for f in saved.files] != [f["sha256"] for f in now.files]:
        moved.append("the YAML was edited")
    elif not _alike(saved, now.document):
        moved.append("what the YAML says came out differently (queues that a glob takes, or the environment)")
    moved += moved_steps(saved.steps, steps_of(now.plan))
    if moved:
        raise StaleError(moved)


def _alike(saved: Saved, document: Document) -> bool:
    if saved.state:
        return saved.document.sha256 == document.sha256
    # Digests of what references gave are made with the state's key, and it had none.
    return saved.document.without_digests().sha256 == document.without_digests().sha256


def _revision(number: int | None) -> str:
    return "none" if number is None else str(number)


def moved_steps(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[str]:
    """What moved between two plans, a line each: the facts that their steps rest on, else the steps themselves."""
    kept = ("address", "op", "queue", "kind", "fields", "write", "loss")
    old, new = ([{name: step[name] for name in kept} for step in steps] for steps in (before, after))
    out = moved_facts(_facts(before), _facts(after))
    if out:
        return out
    if len(old) != len(new):
        return [f"it shows {len(old)} steps, now there are {len(new)}"]
    return [f"{b['address']} is another step than it shows" for a, b in zip(old, new, strict=True) if a != b]


def moved_facts(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What moved between two sets of facts, a line each."""
    out: list[str] = []
    for address in dict.fromkeys([*before, *after]):
        old, new = before.get(address), after.get(address)
        if old is None or new is None:
            out.append(f"{address} {'has nothing to write any more' if new is None else 'has something to write now'}")
        elif "ids" in old and "ids" in new:
            fresh = sorted(set(new["ids"]) - set(old["ids"]))
            if fresh:
                out.append(
                    f"{address}: planned to remove {len(old['ids'])} of {old['dead']} dead, now it would remove "
                    f"{len(new['ids'])} of {new['dead']}, {len(fresh)} of them not in the plan (such as {fresh[0]})"
                )
        elif old != new:
            out.append(f"{address} was {value(old.get('live'))} on the server, now it is {value(new.get('live'))}")
    return out
