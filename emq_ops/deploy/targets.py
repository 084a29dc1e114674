"""A plan of some queues: the rest stays as it was applied. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from emq_ops.deploy.document import Document
from emq_ops.deploy.moved import renames
from emq_ops.policy.words import nearest
from emq_ops.protocol import globs
from emq_ops.protocol.errors import BadInputError


def targeted(desired: Document, applied: Document | None, selectors: Sequence[str]) -> Document:
    """`applied`, with the selected queues as in `desired`. Without anything applied yet, what is of no queue is as in
    `desired`, and queues that come later are nobody's. Raises BadInputError for a selector that takes no queue."""
    before = applied or Document.empty()
    known = sorted({*desired.queues, *before.queues})
    taken: set[str] = set()
    for selector in selectors:
        found = globs.select(selector, known)
        if not found:
            near = nearest(selector, known)
            fix = f"did you mean '{near}'?" if near else "see `emq-ops config show`"
            raise BadInputError(f"'{selector}' takes no queue of the config", where="--target", fix=fix)
        taken.update(found)
    gone = {old for new, old in renames(desired, before).items() if new in taken}
    queues = {name: entry for name, entry in before.queues.items() if name not in taken and name not in gone}
    queues |= {name: entry for name, entry in desired.queues.items() if name in taken}
    config = desired.data["config"]
    if applied is None:
        rest = {key: value for key, value in config.items() if key not in ("queues", "defaults")}
        return Document({**desired.data, "queues": queues, "globs": {}, "config": rest})
    told = {key: value for key, value in applied.data["config"].items() if key != "moved"}
    if config.get("moved"):
        told["moved"] = config["moved"]
    return Document({**applied.data, "queues": queues, "config": told})
