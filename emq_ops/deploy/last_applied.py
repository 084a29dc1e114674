"""What an apply leaves on the server beside the settings of a queue: a note of what it wrote.

It is the proof that tells a server that lost its data from a hand that moved a setting. Whoever moves a setting leaves
the note; where it is gone, or is that of an earlier revision, what stands beside it is gone, or of then, as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from emq_ops.deploy import settings
from emq_ops.deploy.document import Document
from emq_ops.deploy.model import LiveServer, Note
from emq_ops.protocol.errors import EmqError, OutcomeUnknownError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server

Json = dict[str, Any]


def digest(entry: Json | None) -> str:
    """What a note says of the settings of a queue's entry, as they were written; empty where it has none."""
    return _digest((entry or {}).get("settings"))


def _digest(said: Json | None) -> str:
    found = settings.flat(said)
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16] if found else ""


def judge(
    live: LiveServer, applied: Document, number: int, states: Iterable[str], earlier: Callable[[int], Document | None]
) -> None:
    """Sets `lost` of each queue whose settings the server lost since they were applied as revision `number`: what it
    was set back to. `states`: ids by which our state may have written; `earlier`: a revision's document."""
    ours = frozenset(states)
    known: dict[int, Document | None] = {}
    if not applied.noted:
        return
    digests: dict[int, str] = {}  # by settings: queues that say the same share theirs
    for queue, facts in live.queues.items():
        said = (applied.queues.get(queue) or {}).get("settings")
        if not said:
            continue
        if id(said) not in digests:
            digests[id(said)] = _digest(said)
        wanted = digests[id(said)]
        if not wanted:
            continue
        note = facts.note
        if note is None:
            facts.lost = {}
        elif note.state in ours and note.digest != wanted and note.revision < number and not live.interrupted:
            if note.revision not in known:
                known[note.revision] = earlier(note.revision)
            then = known[note.revision]
            before = then.queues.get(queue) if then is not None else None
            if before and digest(before) == note.digest:
                facts.lost = settings.flat(before.get("settings"))


def write(server: Server, document: Document, notes: Mapping[str, Note | None], state: str, number: int) -> None:
    """Notes what `document` says of the queues in `notes` (what each has now), where that is not noted yet. Raises what
    the server raises."""
    todo = {}
    for queue, note in notes.items():
        wanted = digest(document.queues.get(queue))
        if not wanted and note and note.state != state:
            continue  # another state's word
        if wanted != (note.digest if note else "") or (note and note.state != state):
            todo[queue] = wanted
    for again in (True, False):
        replies = server.run_many(
            load("settings_mark"),
            [([keys_of(queue).applied], [state, number, wanted]) for queue, wanted in todo.items()],
        )
        faults = {queue: reply for queue, reply in zip(todo, replies, strict=True) if isinstance(reply, EmqError)}
        if not faults:
            return
        if not again or not all(isinstance(fault, OutcomeUnknownError) for fault in faults.values()):
            raise next(iter(faults.values()))
        todo = {queue: todo[queue] for queue in faults}  # to write the same twice is the same as once
