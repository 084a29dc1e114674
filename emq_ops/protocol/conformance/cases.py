"""Of which deliberate difference a vector is a case: by its facts, and by what its replay came to."""

from __future__ import annotations

import time
from typing import Any

from emq_ops.protocol.conformance.facts import BOOKS, PLAUSIBLE_MS, VectorFacts, jobs_of, outbox_parents
from emq_ops.protocol.conformance.replay import Replayed, Vector
from emq_ops.protocol.conformance.values import offset


def _whole(value: Any) -> bool:
    return str(value).isdecimal()


def lane_only(facts: VectorFacts, _: Vector, replayed: Replayed) -> bool:
    keys = tuple(facts.keys.base + name for name in ("gactive", "ring", "wake"))
    return "group" in facts.row(facts.job) and all(line[2:].startswith(keys) for line in replayed.lines)


def not_in_hand(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    return facts.job not in facts.zset("active") and facts.job not in facts.zset("schedule")


def damaged(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    return any(not _whole(facts.row(job).get("attempts", "")) for job in facts.waiting)


def odd_weight(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    return any(not _whole(weight) for weight in facts.hash("gweight").values())


def other_lane(facts: VectorFacts, vector: Vector, _: Replayed) -> bool:
    lanes = [str(facts.args.get("group", "GRP")), *map(str, facts.args.get("groups", ()))]
    lanes += [key[len(facts.keys.base) + 2 : -8] for key in vector.given if key.startswith(facts.keys.base + "g:")]
    return any(len(lane) == 14 and not lane.startswith("GRP") for lane in lanes)


def behind_others(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    lapsed = [score for score in facts.zset("active").values() if (offset(score) or 0) < 0]
    return len(lapsed) > int(facts.args["limit"])


def twice_or_childless(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    named = jobs_of(facts.args)
    flows = facts.args.get("flows", [facts.args])
    return len(set(named)) < len(named) or any(not flow["children"] for flow in flows)


def there_already(facts: VectorFacts, vector: Vector, _: Replayed) -> bool:
    rows = {key.rpartition(":")[2] for key in vector.given if ":job:" in key}
    return bool(rows & set(jobs_of(facts.args)))


def half_written(_: VectorFacts, vector: Vector, replayed: Replayed) -> bool:
    refused = isinstance(replayed.got, dict) and "error" in replayed.got
    return (refused or isinstance(vector.reply, dict)) and vector.then != vector.given


def reaped_child(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    return "parent" in facts.row(facts.job) and facts.job not in facts.zset("active")


def not_waiting(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    parents = outbox_parents(facts) if "id" not in facts.args else [facts.parent]
    return any(one is not None and one[1].get("state") != "awaiting_children" for one in parents)


def heard_of(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    if facts.parent is None:
        return False
    books = ("processed", "unsuccessful", "failed")
    return any(facts.job in facts.hash(f"job:{facts.parent[0]}:{book}") for book in books)


def own_books(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    return any(facts.has(f"job:{facts.job}:{book}") for book in BOOKS)


def unreadable(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    return None in outbox_parents(facts)


def no_period(facts: VectorFacts, vector: Vector, _: Replayed) -> bool:
    names = [key[len(facts.keys.base) :] for key in vector.given if key.startswith(facts.keys.base + "repeat:")]
    every = [facts.hash(name).get("every_ms", "1") for name in names]
    return any(not _whole(one) or int(one) == 0 for one in every)


def ahead(facts: VectorFacts, vector: Vector, _: Replayed) -> bool:
    stream = vector.given.get(facts.keys.base + f"stream:{facts.args['stream']}", {}).get("stream", {})
    return int(str(stream.get("last_id", "0-0")).partition("-")[0]) > time.time() * 1000


def crashed(_: VectorFacts, vector: Vector, __: Replayed) -> bool:
    return bool(isinstance(vector.reply, list) and vector.reply[-1:] == ["crash"])


def without_row(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    return any(step[0] == "track" and not facts.row(step[1]) for step in facts.args["steps"])


def not_active(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    return any(step[0] == "track" and step[1] not in facts.zset("active") for step in facts.args["steps"])


def longer_lease(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    lease = int(facts.args["lease_ms"])
    return any((offset(score) or 0) > lease for score in facts.zset("active").values())


def own_pending(facts: VectorFacts, vector: Vector, _: Replayed) -> bool:
    stream = vector.given.get(facts.keys.base + f"stream:{facts.args['stream']}", {}).get("stream", {})
    groups = [group for group in stream.get("groups", ()) if group["name"] == facts.args["group"]]
    return any(entry[1] == facts.args["consumer"] for group in groups for entry in group["pending"])


def nothing(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    return bool(facts.args["jobs"] == [])


def implausible(facts: VectorFacts, _: Vector, __: Replayed) -> bool:
    instants = [facts.args[name] for name in ("run_at", "from_ms", "to_ms", "before_ms") if name in facts.args]
    numbers = [float(one) for one in (*facts.scores, *instants) if offset(one) is None]
    return any(int(one) not in PLAUSIBLE_MS for one in numbers)


def wrong_type(_: VectorFacts, vector: Vector, replayed: Replayed) -> bool:
    theirs = str(vector.reply.get("error", "")) if isinstance(vector.reply, dict) else ""
    ours = str(replayed.got.get("error", "")) if isinstance(replayed.got, dict) else ""
    return theirs.startswith(("ERR", "WRONGTYPE")) and ours.startswith("EMQDATA")
