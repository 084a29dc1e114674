"""Key names: the one module that joins strings into keys (docs/protocol.md, *Keys*).

Every key of a queue shares the hash tag ``{queue}``, so one Cluster slot. Our own keys live under ``emq-ops:{queue}:``
on the same slot.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.ids import group_id, is_valid, job_id, require

VERSION_KEY = "{emq}:version"
EVERY_KEY = "emq:{*}:*"
"""The SCAN pattern of every queue's keys."""
EVERY_KEY_BUT_JOBS = "emq:{*}:[^jg]*"
"""The same without rows and lanes, which never stand alone: the server passes over them, and they do not travel."""
EVERY_LEASE = "emq-ops:{*}:lease"
"""The SCAN pattern of every queue's lease of ours."""
MAX_QUEUE_BYTES = 200
JOB_BOOKS = ("logs", "lock", "dependencies", "processed", "failed", "unsuccessful")
"""Suffixes of the keys that may stand beside a row."""
_NOT_IN_A_NAME = re.compile(r"[{}\x00-\x1f\x7f]")


def queue_name(name: str | bytes) -> str:
    """`name` checked: 1..200 UTF-8 bytes, no braces, no control characters. Spaces and globs are legal.

    Raises BadInputError before any key is built from it.
    """
    try:
        text = name.decode("utf-8") if isinstance(name, bytes) else name
        size = len(text.encode("utf-8"))
    except UnicodeError:
        raise BadInputError("a queue name must be UTF-8 text", fix="check where it was copied from") from None
    if not text:
        raise BadInputError("empty queue name", fix="name a queue")
    if size > MAX_QUEUE_BYTES:
        raise BadInputError(f"queue name '{one_line(text[:40])}...' has {size} bytes", fix=f"at most {MAX_QUEUE_BYTES}")
    if found := _NOT_IN_A_NAME.search(text):
        shown = f"queue name '{one_line(text[:40])}'"
        if found[0] in "{}":
            raise BadInputError(f"{shown} has a brace", fix="braces mark the Cluster slot; leave them out")
        raise BadInputError(f"{shown} has a control character", fix="leave it out")
    return text


@functools.lru_cache(maxsize=1024)
def stream_name(name: str | bytes) -> str:
    """`name` of an event stream checked: 1..200 UTF-8 bytes, no braces, control characters, no ``:archived`` end."""
    try:
        text = name.decode("utf-8") if isinstance(name, bytes) else name
        size = len(text.encode("utf-8"))
    except UnicodeError:
        raise BadInputError("a stream name must be UTF-8 text") from None
    if not text or size > MAX_QUEUE_BYTES or _NOT_IN_A_NAME.search(text):
        raise BadInputError(
            f"'{one_line(text[:40])}' can't name a stream", fix="1 to 200 bytes, no braces, no control characters"
        )
    if text.endswith(":archived"):
        raise BadInputError(f"stream name '{one_line(text)}' would be another stream's watermark key")
    return text


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one queue. `queue` is checked when it is made by `keys_of`."""

    queue: str

    @property
    def base(self) -> str:
        """``emq:{q}:``, from which scripts derive the keys of rows and lanes."""
        return "emq:{" + self.queue + "}:"

    @property
    def ops_base(self) -> str:
        """``emq-ops:{q}:``, where this tool keeps its own keys."""
        return "emq-ops:{" + self.queue + "}:"

    @property
    def pending(self) -> str:
        return self.base + "pending"

    @property
    def active(self) -> str:
        return self.base + "active"

    @property
    def schedule(self) -> str:
        return self.base + "schedule"

    @property
    def dead(self) -> str:
        return self.base + "dead"

    @property
    def ring(self) -> str:
        return self.base + "ring"

    @property
    def paused(self) -> str:
        return self.base + "paused"

    @property
    def glimit(self) -> str:
        return self.base + "glimit"

    @property
    def gactive(self) -> str:
        return self.base + "gactive"

    @property
    def limiter(self) -> str:
        return self.base + "limiter"

    @property
    def gweight(self) -> str:
        return self.base + "gweight"

    @property
    def wake(self) -> str:
        return self.base + "wake"

    @property
    def meta(self) -> str:
        return self.base + "meta"

    @property
    def completed(self) -> str:
        return self.base + "metrics:completed"

    @property
    def failed(self) -> str:
        return self.base + "metrics:failed"

    @property
    def repeat(self) -> str:
        return self.base + "repeat"

    @property
    def outbox_aside(self) -> str:
        """Entries of the outbox that can't be delivered, each with the reason before it."""
        return self.ops_base + "outbox-aside"

    @property
    def adding(self) -> str:
        """Flows over several queues whose root is here and that are being added: root -> since (unix ms)."""
        return self.ops_base + "adding"

    def added(self, root: str) -> str:
        """The jobs of such a flow that were added to this queue."""
        return self.ops_base + "added:" + job_id(root)

    @property
    def repeat_marks(self) -> str:
        """Next instants of repeatables as we set them: name -> unix ms."""
        return self.ops_base + "repeat"

    @property
    def calendar(self) -> str:
        """The repeatables that go by the calendar, by their next instant (0: not known yet)."""
        return self.ops_base + "cron"

    def repeat_more(self, name: str) -> str:
        """What the YAML says of a repeatable beyond the wire: lane; template, cron and zone."""
        return self.repeat_marks + ":" + name

    @property
    def outbox(self) -> str:
        return self.base + "flow:outbox"

    @property
    def events(self) -> str:
        """The pub/sub channel."""
        return self.base + "events"

    @property
    def lease(self) -> str:
        """Who leads this queue: our lease."""
        return self.ops_base + "lease"

    @property
    def applied(self) -> str:
        """What the last apply wrote here: its state, revision and digest of the settings."""
        return self.ops_base + "applied"

    @property
    def exempt(self) -> str:
        """Exemptions in a row, a field a job."""
        return self.ops_base + "exempt"

    @property
    def aside(self) -> str:
        """What was set aside: member -> ``<set>: <reason>``."""
        return self.ops_base + "aside"

    @property
    def swept(self) -> str:
        """What the last slice of a sweep did, until the ledger has it."""
        return self.ops_base + "swept"

    @property
    def marks(self) -> str:
        """The watermark that our archive last cached, a field a stream."""
        return self.ops_base + "marks"

    def acted(self, run: str) -> str:
        """What an act did and the ledger has not recorded yet: a list of id, code, id, code ..."""
        return self.ops_base + "acted:" + require(run, "RUN")

    def landed(self, run: str) -> str:
        """What a move brought here and the ledger has not recorded yet: a list of id, code, id, code ..."""
        return self.ops_base + "landed:" + require(run, "RUN")

    def backup_prefix(self, run: str) -> str:
        """The prefix under which an act lays the jobs that it takes away, until the ledger has them."""
        return self.ops_base + "grave:" + require(run, "RUN") + ":"

    def backups(self, run: str, job: str) -> list[str]:
        """Every key that a job may have there."""
        row = self.backup_prefix(run) + job_id(job)
        return [row, *(row + ":" + book for book in JOB_BOOKS if book != "lock"), row + ":place"]

    def repeatable(self, name: str) -> str:
        return self.repeat + ":" + name

    def row(self, job: str) -> str:
        return self.base + "job:" + job_id(job)

    def row_of_member(self, member: str) -> str:
        """The row of an id as a set holds it, well-formed or not: only to be read."""
        return self.base + "job:" + member

    def book(self, job: str, book: str) -> str:
        """A key beside a row: one of JOB_BOOKS."""
        if book not in JOB_BOOKS:
            raise BadInputError(f"'{book}' is no book of a row", fix=", ".join(JOB_BOOKS))
        return self.row(job) + ":" + book

    def lane(self, group: str) -> str:
        return self.base + "g:" + group_id(group) + ":pending"

    def dedup(self, dedup_id: str) -> str:
        return self.base + "de:" + dedup_id

    def stream(self, name: str) -> str:
        return self.base + "stream:" + stream_name(name)

    def watermark(self, name: str) -> str:
        return self.stream(name) + ":archived"

    def lanes_pattern(self) -> str:
        """The SCAN pattern of the queue's lanes."""
        return glob_literal(self.base) + "g:*:pending"

    def lane_of(self, key: bytes) -> str | None:
        """The group of a lane's key; None where it can't be one."""
        group = self.name_of(key)[len(b"g:") : -len(b":pending")]
        return group.decode("ascii") if is_valid(group) else None

    def all_pattern(self) -> str:
        """The SCAN pattern of every key of the queue; its name is taken literally, whatever globs it holds."""
        return glob_literal(self.base) + "*"

    def named(self, name: bytes) -> bytes:
        """The key called `name` after the base, whether the wire knows it or not."""
        return self.base.encode("utf-8") + name

    def name_of(self, key: bytes) -> bytes:
        """What follows the base in one of the queue's keys."""
        return key[len(self.base.encode("utf-8")) :]


def keys_of(queue: str | bytes) -> Keys:
    """The keys of `queue`; raises BadInputError for a name that can't be one."""
    return Keys(queue_name(queue))


def glob_literal(text: str) -> str:
    """A MATCH pattern that fits `text` alone."""
    return re.sub(r"([*?\[\]\\^-])", r"\\\1", text)


@functools.lru_cache(maxsize=16_384)
def absent_keys(key: str) -> tuple[str, str]:
    """Two keys of the slot of `key` (a queue's) that nobody ever writes (docs/protocol.md, *A slot that moves*)."""
    base = "emq:" + key[key.index("{") : key.index("}") + 1] + ":absent:"
    return base + "1", base + "2"
