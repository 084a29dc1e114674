"""Signed entries of the log: HMAC-SHA-256 of all that an entry says, with a key that the bucket's writers hold.

Keys change: several, with commas between, are the one that signs from here on, and those that signed before it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from emq_archive.errors import DamagedArchiveError

FIELD = "sign"


def canonical(told: dict[str, Any]) -> bytes:
    """The one form in which an entry or a checkpoint is written and signed."""
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode("utf-8")


def signed(told: dict[str, Any], key: bytes | None) -> dict[str, Any]:
    """`told` with its signature, by the first of the keys; as it is where there is none."""
    return told if key is None else {**told, FIELD: _sign(told, keys_of(key)[0])}


def keys_of(text: bytes) -> list[bytes]:
    """The keys that are configured, the one that signs first."""
    return [key for part in text.split(b",") if (key := part.strip())] or [text]


def _sign(told: dict[str, Any], key: bytes) -> str:
    unsigned = {name: value for name, value in told.items() if name != FIELD}
    return hmac.new(key, canonical(unsigned), hashlib.sha256).hexdigest()


class Signatures:
    """What a reader has seen of a log's signatures. Without a key everything passes; with one, whatever follows a
    signed entry must be signed, so that the head vouches for all that its chain names."""

    def __init__(self, key: bytes | None) -> None:
        self._keys = [] if key is None else keys_of(key)
        self.seen = False

    def check(self, body: bytes, name: str, *, must: bool = False) -> None:
        """Raises DamagedArchiveError for an entry that is not signed as it has to be (`must`: whatever came before)."""
        if not self._keys:
            return
        try:
            told: Any = json.loads(body)
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            raise DamagedArchiveError(f"{name} can't be read", faults=(name,), fix="run `emq-ops archive verify`")
        found = told.get(FIELD)
        if found is None and not (self.seen or must):
            return
        if found is None:
            what = f"{name} is not signed, and this archive is read with a key (archive.sign)"
        elif not any(hmac.compare_digest(str(found), _sign(told, key)) for key in self._keys):
            what = f"{name} is signed with another key, or was altered"
        else:
            self.seen = True
            return
        raise DamagedArchiveError(what, faults=(name,), fix="see who writes there; `emq-ops archive verify` tells more")
