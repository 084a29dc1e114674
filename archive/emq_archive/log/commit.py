"""Entries of the remote log: what each commit says, and the bytes in which it says it (README, *The log*)."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import quote

from emq_archive.errors import DamagedArchiveError
from emq_archive.log.hostile import MISREAD, check_segment, number, text, why_not
from emq_archive.log.signing import canonical, signed
from emq_archive.model import StreamId, StreamRef, Writer, parse_id, show_id
from emq_archive.ports import Remote

FORMAT = 1
LSN_DIGITS = 20
MAX_COMMIT_BYTES = 256 * 1024 * 1024
"""What a writer of ours never exceeds: an object that is larger is none of its commits, and is not even read."""
_EPOCH = date(1970, 1, 1)
_LONGEST = 160


def folder(ref: StreamRef) -> str:
    """``queue=<q>/stream=<name>/`` with awkward bytes percent-encoded; where that would be longer than a file name may
    be, its head and a hash of it."""
    return f"queue={encoded(ref.queue)}/stream={_stream(ref)}/"


def log_folder(ref: StreamRef) -> str:
    """``log/<q>/<name>/``."""
    return f"log/{encoded(ref.queue)}/{_stream(ref)}/"


def _stream(ref: StreamRef) -> str:
    # A real stream named "dead" must not share a folder with the dead jobs.
    if ref.kind == "stream" and ref.stream == "dead":
        return "%64ead"
    return encoded(ref.stream)


def encoded(name: str) -> str:
    """A queue or stream name as one part of a key."""
    text = quote(name, safe="").replace("~", "%7E")
    if text.startswith("."):
        text = "%2E" + text[1:]
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 40]}~{hashlib.sha256(name.encode('utf-8')).hexdigest()[:32]}"
    return text


def day_text(day: int) -> str:
    """Days since 1970 as ``yyyy-mm-dd``."""
    return (_EPOCH + timedelta(days=day)).isoformat()


def time_text(unix_ms: int) -> str:
    """For people: ``2026-01-31T12:00:00.000Z``."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Segment:
    """A committed object. `lsn`: the commit that added it; `weight`: its records uncompressed; `day` since 1970;
    `time_min`, `time_max` unix ms; `job_min`, `job_max` None unless every job in it is plain ASCII; `evt`: the ``EVT``
    id of its highest record that has one."""

    lsn: int
    key: str
    sha256: str
    bytes: int
    weight: int
    records: int
    first: StreamId
    last: StreamId
    incarnation: int
    day: int
    time_min: int
    time_max: int
    job_min: str | None
    job_max: str | None
    evt: str | None

    def told(self) -> dict[str, Any]:
        """As a commit says it."""
        told = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "lsn"}
        return {**told, "first": show_id(self.first), "last": show_id(self.last)}

    @classmethod
    def of(cls, told: dict[str, Any], lsn: int) -> Segment:
        """Back from `told`. Raises ValueError, KeyError, TypeError, BadInputError for what no writer of ours says."""
        check_segment(told)
        said = {**told, "first": parse_id(told["first"]), "last": parse_id(told["last"])}
        return cls(lsn=lsn, **said)


@dataclass(frozen=True, slots=True)
class LetGo:
    """Records that expired, or were adopted, and may still stand in the stream: the lowest and the highest id, and what
    they are known by (`redact.identities`, sorted, one after the other)."""

    first: StreamId
    last: StreamId
    identities: bytes

    def told(self) -> dict[str, str]:
        """As a commit and a checkpoint say it."""
        known = base64.b64encode(self.identities).decode("ascii")
        return {"first": show_id(self.first), "last": show_id(self.last), "identities": known}

    @classmethod
    def of(cls, told: dict[str, str]) -> LetGo:
        """Back from `told`."""
        return cls(parse_id(told["first"]), parse_id(told["last"]), base64.b64decode(told["identities"], validate=True))


KINDS = ("ship", "compact", "expire", "erase", "adopt", "reship", "loss")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an entry does. `kind`: one of `KINDS`. `at`: unix ms. `opens`: the incarnation that begins with it.
    `remove`: (lsn, key) of the segments that it takes out. `erased`: (job, up to which id). `after`: up to which id
    another archiver had archived. `let_go`: of the expired or adopted records, those that must not be archived again.
    `lost`: from which to which number commits are given up for lost."""

    kind: str
    at: int
    add: tuple[Segment, ...] = ()
    remove: tuple[tuple[int, str], ...] = ()
    opens: int | None = None
    erased: tuple[str, StreamId] | None = None
    redact: str | None = None
    after: str | None = None
    let_go: LetGo | None = None
    lost: tuple[tuple[int, int], ...] = ()

    def follow(self, lsn: int, head: str | None, ref: StreamRef, writer: Writer) -> Commit:
        """This change as entry `lsn`, behind the entry whose hash is `head`."""
        said = {name: getattr(self, name) for name in Change.__dataclass_fields__}
        said["add"] = tuple(replace(segment, lsn=lsn) for segment in self.add)
        return Commit(
            **said,
            lsn=lsn,
            ref=ref,
            state=writer.state,
            previous=head or "",
            writer=writer.name,
            nonce=secrets.token_hex(16),
            token=writer.token,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Change):
    """An entry of the log. `previous`: SHA-256 of the entry before (hex; empty in the first)."""

    lsn: int
    ref: StreamRef
    state: str
    previous: str
    writer: str
    nonce: str
    token: int

    def body(self, key: bytes | None = None) -> bytes:
        """The very bytes, signed with `key` if given: the same commit is always the same bytes."""
        told: dict[str, Any] = {
            "format": FORMAT,
            "lsn": self.lsn,
            "kind": self.kind,
            "queue": self.ref.queue,
            "stream": self.ref.stream,
            "source": self.ref.kind,
            "state": self.state,
            "previous": self.previous,
            "writer": self.writer,
            "nonce": self.nonce,
            "token": self.token,
            "at": self.at,
            "add": [segment.told() for segment in self.add],
            "remove": [{"lsn": lsn, "key": key} for lsn, key in self.remove],
        }
        if self.opens is not None:
            told["opens"] = self.opens
        if self.erased is not None:
            told["erased"] = {"job": self.erased[0], "upto": show_id(self.erased[1])}
        if self.redact is not None:
            told["redact"] = json.loads(self.redact)
        if self.after is not None:
            told["after"] = self.after
        if self.let_go is not None:
            told["let_go"] = self.let_go.told()
        if self.lost:
            told["lost"] = [list(ends) for ends in self.lost]
        return canonical(signed(told, key)) + b"\n"

    @classmethod
    def of(cls, body: bytes, key: str) -> Commit:
        """Back from `body`. Raises DamagedArchiveError naming `key`."""
        try:
            told = json.loads(body)
            if told["format"] != FORMAT:
                raise DamagedArchiveError(
                    f"commit {key} is of format {told['format']}, and this version reads {FORMAT}",
                    faults=(key,),
                    fix="use a newer emq-ops",
                )
            if text(told, "kind") not in KINDS:
                raise DamagedArchiveError(
                    f"commit {key} is of kind {told['kind'][:40]!r}, and this version knows {', '.join(KINDS)}",
                    faults=(key,),
                    fix="use a newer emq-ops; if there is none, look who wrote it",
                )
            lsn = number(told, "lsn")
            erased = told.get("erased")
            redact = told.get("redact")
            let_go = told.get("let_go")
            return cls(
                lsn=lsn,
                kind=text(told, "kind"),
                ref=StreamRef(text(told, "queue"), text(told, "stream"), told["source"]),
                state=text(told, "state"),
                previous=text(told, "previous"),
                writer=text(told, "writer"),
                nonce=text(told, "nonce"),
                token=number(told, "token"),
                at=number(told, "at"),
                add=tuple(Segment.of(segment, lsn) for segment in told["add"]),
                remove=tuple((number(gone, "lsn"), text(gone, "key")) for gone in told["remove"]),
                opens=None if told.get("opens") is None else number(told, "opens", most=2**31 - 1),
                erased=(erased["job"], parse_id(erased["upto"])) if erased else None,
                redact=json.dumps(redact, separators=(",", ":")) if redact is not None else None,
                after=told.get("after"),
                let_go=LetGo.of(let_go) if let_go is not None else None,
                lost=tuple((int(first), int(last)) for first, last in told.get("lost", ())),
            )
        except MISREAD as fault:
            raise DamagedArchiveError(
                f"commit {key} can't be read: {why_not(fault)}", faults=(key,), fix="run `emq-ops archive verify`"
            ) from fault


def get_commit(remote: Remote, key: str) -> tuple[bytes, Commit]:
    """A commit and its very bytes. Raises DamagedArchiveError where it is missing, or none."""
    body = remote.get(key, most=MAX_COMMIT_BYTES)
    if body is None:
        raise DamagedArchiveError(f"{key}: missing from the log", faults=(key,), where=remote.url)
    return body, Commit.of(body, key)


def hash_of(body: bytes) -> str:
    """What the next commit names as `previous`."""
    return hashlib.sha256(body).hexdigest()


def has_log(remote: Remote, queue: str) -> bool:
    """Whether the remote holds the log of any stream of a queue: one request. Raises what the store raises."""
    return bool(remote.list(f"log/{encoded(queue)}/", limit=1))


def commit_key(ref: StreamRef, lsn: int) -> str:
    """Where commit `lsn` is."""
    return f"{log_folder(ref)}{lsn:0{LSN_DIGITS}d}.json"


def lsn_of(key: str, ref: StreamRef | None = None) -> int | None:
    """The number in a commit's key, None where it is no commit's (of `ref`, if given)."""
    name = key.rsplit("/", 1)[-1].removesuffix(".json")
    lsn = int(name) if _is_number(name) and name[0] == "0" and key.endswith(".json") else None
    return lsn if lsn and (ref is None or key == commit_key(ref, lsn)) else None


def checkpoint_folder(ref: StreamRef) -> str:
    """Checkpoints are named so that the newest comes first in a listing."""
    return log_folder(ref) + "checkpoint/"


def checkpoint_key(ref: StreamRef, lsn: int) -> str:
    """Where the checkpoint after commit `lsn` is."""
    return f"{checkpoint_folder(ref)}{10**LSN_DIGITS - 1 - lsn:0{LSN_DIGITS}d}.json.gz"


def checkpoint_lsn(key: str, ref: StreamRef | None = None) -> int | None:
    """Back from `checkpoint_key`; None for a name that is no checkpoint's (of `ref`, if given)."""
    name = key.rsplit("/", 1)[-1].removesuffix(".json.gz")
    lsn = int(10**LSN_DIGITS) - 1 - int(name) if _is_number(name) and key.endswith(".json.gz") else None
    return lsn if lsn and (ref is None or key == checkpoint_key(ref, lsn)) else None


def _is_number(name: str) -> bool:
    return len(name) == LSN_DIGITS and name.isascii() and name.isdigit()
