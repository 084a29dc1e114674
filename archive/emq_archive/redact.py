"""Named fields that must not be stored as they are, and the question whether two forms of a record are the same one."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Sequence

from emq_archive.codec import id_key, pack
from emq_archive.model import Pair, RawEntry, Redact, StreamId

_HASHED = re.compile(rb"sha256:[0-9a-f]{64}")
_ANY = b"sha256:*"
NOTHING = Redact()
IDENTITY_BYTES = 16


def spec_of(redact: Redact) -> str:
    """What is remembered of a redaction: its names, never its salt."""
    return json.dumps({"drop": sorted(redact.drop), "hash": sorted(redact.hash)}, separators=(",", ":"))


def from_spec(spec: str) -> Redact:
    """Back from `spec_of`."""
    told = json.loads(spec)
    return Redact(tuple(told["drop"]), tuple(told["hash"]))


def _names(names: Iterable[str], kind: str) -> frozenset[bytes]:
    plain = {name.encode("utf-8") for name in names}
    return frozenset(plain | {b"row:" + name for name in plain} if kind == "dead" else plain)


def hashed(value: bytes, salt: str) -> bytes:
    """What stands in place of a hashed value."""
    return b"sha256:" + hmac.new(salt.encode("utf-8"), value, hashlib.sha256).hexdigest().encode("ascii")


def apply(entries: Sequence[RawEntry], redact: Redact, kind: str) -> list[RawEntry]:
    """The entries with the named fields dropped or hashed."""
    drop, hash_ = _names(redact.drop, kind), _names(redact.hash, kind)
    out: list[RawEntry] = []
    for entry_id, flat in entries:
        kept: list[bytes] = []
        for i in range(0, len(flat), 2):
            name, value = flat[i], flat[i + 1]
            if name not in drop:
                kept += (name, hashed(value, redact.salt) if name in hash_ else value)
        out.append([entry_id, kept])
    return out


def same(stored: Sequence[Pair], original: Sequence[Pair], ever: Iterable[Redact], kind: str) -> bool:
    """Whether `stored` is `original`, as it is or under one of the redactions `ever` in force. The facts of a death
    don't count: hosts may see them differently."""
    if kind == "dead":
        stored = [p for p in stored if not p[0].startswith(b"fact:")]
        original = [p for p in original if not p[0].startswith(b"fact:")]
    if list(stored) == list(original):
        return True
    return any(_stored_form(stored, redact, kind) == _original_form(original, redact, kind) for redact in ever)


def _stored_form(stored: Sequence[Pair], redact: Redact, kind: str) -> list[Pair]:
    hash_ = _names(redact.hash, kind)
    return [(n, _ANY if n in hash_ and _HASHED.fullmatch(v) else v) for n, v in stored]


def _original_form(original: Sequence[Pair], redact: Redact, kind: str) -> list[Pair]:
    drop, hash_ = _names(redact.drop, kind), _names(redact.hash, kind)
    return [(n, _ANY if n in hash_ else v) for n, v in original if n not in drop]


def split_identities(packed: Iterable[bytes]) -> set[bytes]:
    """Identities that stand one after the other, apart."""
    return {some[at : at + IDENTITY_BYTES] for some in packed for at in range(0, len(some), IDENTITY_BYTES)}


def identities(stream_id: StreamId, fields: Sequence[Pair], ever: Iterable[Redact], *, stored: bool) -> set[bytes]:
    """What a stream's record is known by when it is no longer there (16 bytes each): as it is, and under each redaction
    `ever` in force. A record that was `stored` and its original, read again, have one in common; others have none."""
    form = _stored_form if stored else _original_form
    forms = [list(fields), *(form(fields, redact, "stream") for redact in ever)]
    return {
        hashlib.sha256(id_key(*stream_id) + pack([x for pair in told for x in pair])).digest()[:IDENTITY_BYTES]
        for told in forms
    }
