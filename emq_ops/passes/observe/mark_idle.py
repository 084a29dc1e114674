"""First sight of many queues at once: those that stand as the ledger knows them, with nothing that a pass would do.

What a pass of its own would find and store for each is found in one flush and stored in one transaction. A queue of
which anything else is to be said is left to its passes.
"""

from __future__ import annotations

from collections.abc import Sequence

from emq_ops.ledger import alerts, deaths, interruptions
from emq_ops.ledger.interruptions import Contact
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.observe.interruptions import compare
from emq_ops.passes.observe.queue_state import QueueState, observe_many, restored
from emq_ops.passes.observe.reconcile import agreed
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.server import Server

PAGE = 500


def mark_idle_queues(server: Server, ledger: Ledger, queues: Sequence[str]) -> dict[str, QueueState]:
    """How those of `queues` stand that a sweep would find idle: nothing in flight or due, no interruption since the
    last contact, the dead set as it is known. A queue that was never seen, without a dead job, is known from now on.

    Call it holding the queues' leases. Raises what server and ledger raise.
    """
    found: dict[str, QueueState] = {}
    for first in range(0, len(queues), PAGE):
        found |= _page(server, ledger, queues[first : first + PAGE])
    return found


def _page(server: Server, ledger: Ledger, queues: Sequence[str]) -> dict[str, QueueState]:
    calm: dict[str, QueueState] = {}
    for queue, sight in observe_many(server, queues).items():
        if not isinstance(sight, EmqError) and not (sight.due or sight.active or sight.unrecorded):
            calm[queue] = sight
    names = list(calm)
    with ledger.read() as connection:
        contacts = interruptions.contacts_of(connection, names)
        busy = alerts.sampled(connection, names) | deaths.with_open(connection, [q for q in names if q not in contacts])
    known = {q: s for q, s in calm.items() if q not in busy and _as_known(contacts.get(q), s)}
    fresh = {q: s for q, s in calm.items() if q not in contacts and q not in busy and s.dead == 0}
    loaded = _loaded(server, fresh)
    fresh = {queue: sight for queue, sight in fresh.items() if not loaded[sight.run_id]}
    if fresh:
        with ledger.write() as connection:
            interruptions.add_contacts(connection, {queue: _contact(sight) for queue, sight in fresh.items()})
    return known | fresh


def _as_known(contact: Contact | None, sight: QueueState) -> bool:
    return contact is not None and compare(contact, sight) is None and agreed(contact, sight)


def _loaded(server: Server, fresh: dict[str, QueueState]) -> dict[str, bool]:
    """Of each node (by its run id) that owns one of these queues: whether it began by loading a keyspace."""
    told: dict[str, bool] = {}
    for queue, sight in fresh.items():
        if sight.run_id not in told:
            told[sight.run_id] = restored(server, queue)
    return told


def _contact(sight: QueueState) -> Contact:
    return Contact(
        sight.run_id,
        sight.replid,
        sight.now_ms,
        token=sight.token,
        completed=sight.completed,
        failed=sight.failed,
        agreed_dead=0,
        agreed_failed=sight.failed,
    )
