"""Error replies: what the server said, word for word, and which of our errors it is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from emq_ops.protocol.errors import (
    ROTATED,
    WIRE_ERRORS,
    AccessRefusedError,
    DamagedError,
    EmqError,
    ServerError,
    SlotMovingError,
    UnreachableError,
)

AT_ONCE = frozenset({"NOSCRIPT", "MOVED", "ASK"})
"""Refusals that are mended before the next attempt: a script loaded, another node asked."""
LATER = frozenset({"LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "BUSY", "UNBLOCKED"})
"""Refusals that pass by themselves. Nothing was executed, so that even a write may be sent again."""
OTHER_NODE = frozenset({"MOVED", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "UNBLOCKED"})
"""Refusals after which the place of the primary is asked for again."""

_REFUSED = frozenset({"NOAUTH", "WRONGPASS", "DENIED"})
_AWAY = frozenset({"LOADING", "CLUSTERDOWN", "MASTERDOWN"})
_MOVING = frozenset({"ASK", "TRYAGAIN"})
MOVING_FIX = "it goes on when the move is over; CLUSTER NODES of both nodes shows one that was left half done"
_FIXES = {
    "BUSY": "another client's script runs too long; SCRIPT KILL ends one that has not written yet",
    "CLUSTERDOWN": "bring back the primaries of the slots that are missing",
    "CROSSSLOT": "keys of several queues in one call; a fault of the caller",
    "DENIED": "the server is in protected mode: set a password, or connect from its own host",
    "LOADING": "the server still reads its data; try again in a moment",
    "MASTERDOWN": "this replica lost its primary; connect to the new one",
    "MISCONF": "the server can't write its data to disk; see its log",
    "MOVED": "this is a Cluster node; use redis+cluster://",
    "NOAUTH": "give user and password, in the URL or in the config",
    "NOPERM": "give the ACL user this right; examples/acl has a file for each role",
    "NOREPLICAS": "too few replicas are in step for min-replicas-to-write",
    "NOSCRIPT": "something keeps flushing the server's scripts; look for SCRIPT FLUSH",
    "OOM": "the server is at maxmemory: free memory (a dead trim still works) or raise it",
    "READONLY": "this node is a replica: give the primary's address, or a redis+sentinel:// URL",
    "WRONGPASS": f"check user and password; {ROTATED}",
}
# " script: <sha>, on @user_script:12." (the SHA is missing for EVAL); before 7.0: "ERR Error running script (...)".
_INSIDE = re.compile(r" script: (?:[0-9a-f]{40}, ?)?on @?user_script:([0-9]+)\.?\Z")
_INSIDE_OLD = re.compile(
    r"ERR Error running script \(call to f_[0-9a-f]{40}\): @user_script:([0-9]+): (?:@user_script: [0-9]+: )?"
)


class ErrorReply(Exception):
    """An error reply as a value: its exact text. (An exception only because the parser wants one; never raised.)"""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    @property
    def code(self) -> str:
        """The first word."""
        return self.text.split(" ", 1)[0]

    @property
    def inside(self) -> bool:
        """Whether a command inside a script failed, so that the script had already begun."""
        return split_script(self.text)[1] is not None


def split_script(text: str) -> tuple[str, str | None]:
    """The text without what the server wraps around an error inside a script, and the script's line (None: no
    wrapping)."""
    match = _INSIDE.search(text)
    if match is not None:
        return text[: match.start()], match[1]
    match = _INSIDE_OLD.match(text)
    if match is not None:
        return text[match.end() :], match[1]
    return text, None


def reply_error(text: str, where: str, *, script: str | None = None, keys: Sequence[str | bytes] = ()) -> EmqError:
    """The error for an error reply, by its first word. `script` and `keys`: what was called, for the message.

    `what` is the server's text word for word, without the wrapping of a script.
    """
    plain, line = split_script(text)
    code = plain.split(" ", 1)[0]
    if script is not None and line is not None:
        where = f"{where}, lua/{script}.lua:{line}"
    wire = WIRE_ERRORS.get(code)
    if wire is not None:
        return wire(plain, where=where)
    if code == "WRONGTYPE":
        named = ", ".join(k.decode("utf-8", "replace") if isinstance(k, bytes) else k for k in keys)
        which = f"one of {named}" if len(keys) > 1 else named or "a key"
        return DamagedError(
            f"EMQDATA {which} is not of the kind that the wire says", where=where, fix="emq-ops doctor shows more"
        )
    if code in _REFUSED:
        return AccessRefusedError(plain, where=where, fix=_FIXES[code])
    if code in _MOVING:
        return SlotMovingError("the Cluster is moving this slot", where=where, fix=MOVING_FIX)
    if code in _AWAY:
        return UnreachableError(plain, where=where, fix=_FIXES[code])
    if plain.startswith("ERR max number of clients"):
        return UnreachableError(plain, where=where, fix="raise maxclients, or close idle clients")
    return ServerError(plain, code=code, where=where, fix=_FIXES.get(code))
