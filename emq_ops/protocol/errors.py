"""Every error of emq-ops: one base, one branch a layer, fields instead of text to match.

An error says *what* is wrong, *where*, and what to do (*fix*). ``str()`` of it is one line; only ``cli``
turns an error into an exit code.
"""

from __future__ import annotations

import re

from emq_ops.protocol.masking import masked


def one_line(text: str) -> str:
    """`text` with control characters escaped, so that it stays one line and can't steer a terminal; secrets masked."""
    text = masked(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


ROTATED = "if it was rotated: ${NAME} is read anew from the file that NAME_FILE names, else restart the process"
"""What to do about a secret that is not good any more."""


class EmqError(Exception):
    """The base. `what`: the fault; `where`: file, key, queue or address; `fix`: what to do about it."""

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what = what
        self.where = where
        self.fix = fix
        super().__init__(what, where, fix)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return one_line(f"{text} ({self.fix})" if self.fix else text)


def code_of(fault: BaseException) -> str:
    """A short word for the kind of a fault, of a bounded set: the server's own code where it gave one (``OOM``,
    ``EMQSTALE``), else the name of its class (``unreachable``)."""
    code = getattr(fault, "code", None)
    if isinstance(code, str) and code.isalnum() and len(code) <= 32:
        return code
    name = type(fault).__name__.removesuffix("Error")
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


class BadInputError(EmqError, ValueError):
    """What the caller gave can't be taken: a malformed id, a flag, a YAML value. Nothing was sent."""


class UnreachableError(EmqError):
    """A server, database or store does not answer, or refuses the connection. Nothing was changed."""


class AccessRefusedError(UnreachableError):
    """The server answers, and lets us not in: no or a wrong password, protected mode. Trying again is of no use."""


class DeadlineError(UnreachableError):
    """The time that the caller gave ran out before an answer came. Nothing was changed."""


class ReconnectedError(UnreachableError):
    """A session's one connection ended, so what was read over it may be of an earlier life of the server: begin
    again. The call that raises this changed nothing."""


class SlotMovingError(UnreachableError):
    """The Cluster moves the queue's slot, or left a move half done: some of its keys are here and some there, so that
    nothing is judged or written meanwhile. Nothing was changed."""


class OutcomeUnknownError(EmqError):
    """A write was sent and its reply was lost: it may have happened or not. Look before sending it again."""


class ServerError(EmqError):
    """The server answered with an error that is none of the wire's own classes.

    `code`: the first word of its reply (``OOM``, ``BUSY``, ``NOPERM``, ``WRONGTYPE`` ...).
    """

    def __init__(self, what: str, *, code: str = "ERR", where: str | None = None, fix: str | None = None) -> None:
        super().__init__(what, where=where, fix=fix)
        self.code = code


class WireError(EmqError):
    """A transition refused, with its class on the wire in `code`. A refusal changes nothing."""

    code = "EMQ"


class KindError(WireError):
    """``EMQKIND``: an id of the wrong namespace."""

    code = "EMQKIND"


class StaleTokenError(WireError):
    """``EMQSTALE``: the fencing token is not the row's; somebody else holds the job, or it is gone."""

    code = "EMQSTALE"


class HeldError(WireError):
    """``EMQLOCK``: a worker holds this job."""

    code = "EMQLOCK"


class StateError(WireError):
    """``EMQSTATE``: the job or queue is in a state that this verb does not take."""

    code = "EMQSTATE"


class RateError(WireError):
    """``EMQRATE``: the queue is at its ceiling, or at its rate."""

    code = "EMQRATE"

    @property
    def wait_ms(self) -> int | None:
        """At the rate: when it opens again, ms from when it was asked; None at the ceiling, which nobody can say that
        of."""
        found = re.search(r"open in (\d+) ms", self.what)
        return int(found[1]) if found else None


class DamagedError(WireError):
    """``EMQDATA`` (ours): stored data does not fit the wire format: a key of another type, a row without
    ``attempts``, a count or a score that is no number. Nothing was changed; ``doctor`` explains and mends."""

    code = "EMQDATA"


class FenceError(WireError):
    """``EMQFENCE`` (ours): the queue's lease is not ours any more: absent, expired, another token or another
    life of the server. Nothing was written. `above`: a token that ours must exceed, 0 where none is told."""

    code = "EMQFENCE"
    above = 0


class IncompatibleError(EmqError):
    """The server speaks another wire version than this tool accepts."""


WIRE_ERRORS: dict[str, type[WireError]] = {
    cls.code: cls for cls in (KindError, StaleTokenError, HeldError, StateError, RateError, DamagedError, FenceError)
}
