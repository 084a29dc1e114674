"""The kinds of damage: what each means, what mending does, and whether that is safe to do unasked."""

from __future__ import annotations

from dataclasses import dataclass

from emq_ops.protocol.errors import BadInputError


@dataclass(frozen=True, slots=True)
class DamageKind:
    """One kind of damage. `mending` is None where nothing but a person can decide; `safe` where ``--fix`` may do it
    without being told: nothing is lost by it, and it can't be wrong. `ordinary`: it comes about in healthy operation,
    so it is counted, and listed only where it is asked for."""

    name: str
    meaning: str
    mending: str | None
    safe: bool = True
    ordinary: bool = False


_ALL = (
    # jobs
    DamageKind(
        "ghost",
        "an id in active without a row: a lease of a job that is gone; sweeps would make a hollow row of it",
        "takes the id out of the set",
    ),
    DamageKind(
        "member_without_row",
        "an id waits in a set without a row: a claim of it gets no payload",
        "takes the id out of the set",
    ),
    DamageKind(
        "odd_member", "a member that is no JOB id; claims and sweeps refuse the set", "takes it out, if no row has it"
    ),
    DamageKind(
        "hollow_row",
        "a row without payload and attempts, left by a sweep of a ghost or a write to a job that is gone",
        "takes the id out of every set and deletes what is left of the row",
    ),
    DamageKind("no_attempts", "a row without attempts, which is the token: it can't be claimed", "sets attempts to 0"),
    DamageKind("bad_attempts", "attempts is no count: the job can't be claimed or settled", "sets attempts to 0"),
    DamageKind("bad_stalled", "the stall count is no number: the sweep refuses the job", "takes the stall count away"),
    DamageKind("odd_group", "the row names a lane that is no GRP id", None, False),
    DamageKind(
        "lost_row",
        "a row in no set: nobody will ever claim it",
        "puts it where its state says: dead, scheduled (its instant is lost: due now), or waiting",
    ),
    DamageKind(
        "two_places",
        "a job in more than one set: it runs twice, or dies while it runs",
        "leaves it where its state says, else where it is leased or waits",
    ),
    DamageKind(
        "wrong_lane", "a job waits where its lane's consumers never look", "moves it to its lane, with the ring rule"
    ),
    DamageKind("state_mismatch", "the row's state contradicts the set that it is in", "sets the state by the set"),
    DamageKind(
        "odd_score",
        "a deadline or due time that is no unix ms of our days, or an order score that is not 0",
        "turns seconds or microseconds into ms (anything else is due now); order scores become 0",
    ),
    # lanes
    DamageKind(
        "off_ring", "a lane with work that may be served is not on the ring: its jobs wait for ever", "the ring rule"
    ),
    DamageKind(
        "on_ring",
        "a lane on the ring that is empty, paused or at its limit: a claim would overrun it",
        "takes it off the ring",
    ),
    DamageKind(
        "ring_twice", "a lane is on the ring more than once: it gets more than its turn", "leaves its first place"
    ),
    DamageKind(
        "wrong_gactive",
        "the count of a lane's jobs in flight is wrong: its limit admits too many or too few",
        "sets it to what is in active, and the lane's place on the ring with it",
    ),
    DamageKind("bad_limit", "a lane's ceiling is no positive number", "takes the ceiling away", False),
    DamageKind("bad_weight", "a lane's weight is no positive number", "takes the weight away", False),
    DamageKind("odd_lane", "a lane whose name is no GRP id: nobody claims from it", None, False),
    DamageKind("odd_lane_name", "a name that is no GRP id where only lanes stand", "takes the name out"),
    # other keys
    DamageKind("wrong_type", "a key of another type than the wire says: what uses it is refused", None, False),
    DamageKind("unknown_key", "a key in the queue's space that is no key of the wire", None, False),
    DamageKind("stray_book", "a lock or flow books of a job without a row", "deletes the key"),
    DamageKind(
        "left_logs",
        "logs of a job that is gone: workers of the reference complete a job without them",
        "deletes the key",
        safe=False,
        ordinary=True,
    ),
    DamageKind("bad_dependencies", "a flow parent's count of children is no number: it waits for ever", None, False),
    DamageKind(
        "unreleased_parent",
        "a flow parent waits, though all its children have settled",
        "puts it to wait for a worker",
    ),
    DamageKind(
        "untold_death",
        "a dead flow child of which its parent, which waits, never heard",
        "tells it, by its policy",
    ),
    DamageKind(
        "lost_children",
        "a flow parent waits for children that are gone without a word",
        "puts it into the dead set, as the death of a child does; its own parent hears of it",
    ),
    DamageKind("stray_dedup", "a deduplication key held by a job that is gone: it blocks new jobs", "deletes the key"),
    DamageKind("odd_dedup", "a deduplication key that holds no JOB id", "deletes the key", False),
    DamageKind(
        "repeat_without_hash", "a repeatable without its template: it fires nothing", "takes its name off the list"
    ),
    DamageKind(
        "repeat_not_listed", "a repeatable that is on no list: it never fires", "lists it, an interval from now"
    ),
    DamageKind("bad_every", "a repeatable whose interval is no positive number", None, False),
    DamageKind("odd_repeat", "a repeatable whose next instant is no unix ms of our days", "an interval from now"),
    DamageKind("long_wake", "more than 64 wake tokens", "trims the list to 64"),
    DamageKind("bad_count", "a counter that is no number: jobs can't be settled", "starts it again at 0"),
    DamageKind("bad_ceiling", "the queue's ceiling or rate is no number: claims are refused", "takes it away", False),
    # what the product rests on
    DamageKind("server_unreachable", "the server does not answer: nothing of the queues could be judged", None, False),
    DamageKind("server_not_durable", "the server can't write its data to disk: a restart loses jobs", None, False),
    DamageKind("state_unusable", "the state database can't be read, or not be written to: nothing runs", None, False),
    DamageKind("foreign_lease", "a queue is led by another state: no pass of ours runs; see its text", None, False),
    DamageKind(
        "state_behind",
        "the state database is older than what was done under it (a backup was put back): it knows nothing of those"
        " runs and deaths",
        None,
        False,
    ),
    DamageKind("overdue", "a task did not run when it was due; see `ps`, and whether `up` runs", None, False),
    DamageKind("clock_skew", "two clocks are apart: crons, ages and windows come at the wrong time", None, False),
    DamageKind("archive_damaged", "a stream's archive is damaged; see `archive verify`, `archive reship`", None, False),
    DamageKind(
        "archive_head_missing", "a log's newest commit is gone from the store; see `archive reship`", None, False
    ),
    DamageKind(
        "foreign_archive", "the archive of a stream belongs to another state; see `state take-over`", None, False
    ),
    DamageKind("archive_unreadable", "the archive's local database can't be opened", None, False),
    DamageKind("store_unreachable", "the object store does not answer, or refuses: nothing is shipped", None, False),
    DamageKind("disk_low", "the disk below the state or the archive is nearly full: passes will stop", None, False),
    DamageKind("open_file", "a database that others may read or write, and that is not ours to tighten", None, False),
    DamageKind("reserved_key", "a key under {emq}: other than the version: that space is the wire's own", None, False),
)
KINDS: dict[str, DamageKind] = {kind.name: kind for kind in _ALL}


def kinds_named(names: list[str]) -> frozenset[str]:
    """`names` checked as kinds of damage; raises BadInputError for one that is not."""
    for name in names:
        if name not in KINDS:
            raise BadInputError(f"no kind of damage is called '{name}'", fix=", ".join(KINDS))
    return frozenset(names)
