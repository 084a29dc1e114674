"""Attempts at one request: exponential backoff with full jitter, a bound, and the caller's deadline."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from emq_archive.deadline import Deadline
from emq_archive.errors import DeadlineError, StoreUnreachableError
from emq_archive.remote.s3_faults import Passing

ATTEMPTS = 8
FIRST_SECONDS = 0.1
MOST_SECONDS = 10.0


class Attempt:
    """One of the attempts; `failed` is told what went wrong, and raises what trying again can't mend."""

    def __init__(self, number: int, deadline: Deadline, what: str, where: str) -> None:
        self._number, self._deadline, self._what, self._where = number, deadline, what, where

    def failed(self, fault: BaseException) -> None:
        """Waits for the next attempt, or raises."""
        if not isinstance(fault, Passing):
            raise fault
        wait = random.uniform(0, min(MOST_SECONDS, FIRST_SECONDS * 2.0**self._number))
        if self._deadline.left() <= wait:
            raise DeadlineError(
                f"the time was up while {self._what}; last: {fault.said}",
                where=self._where,
                fix="see whether the store is well; the next run goes on",
            ) from fault
        if self._number >= ATTEMPTS:
            raise StoreUnreachableError(
                f"{self._what} failed {ATTEMPTS} times; last: {fault.said}",
                where=self._where,
                fix="see whether the store is well; the next run goes on",
            ) from fault
        time.sleep(wait)


def attempts(deadline: Deadline, what: str, where: str) -> Iterator[Attempt]:
    """The attempts at `what`; the caller leaves the loop when one succeeds."""
    for number in range(1, ATTEMPTS + 1):
        deadline.check(what)
        yield Attempt(number, deadline, what, where)
