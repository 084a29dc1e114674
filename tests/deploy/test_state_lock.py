"""The state lock when its clock is set by hours: nobody waits for them, and an owner at work goes on."""

from __future__ import annotations

from typing import Any

import pytest

from emq_ops.deploy.store.lock import LockedError, LockLostError, StateLock
from emq_ops.ledger.deploy_schema import state_lock
from emq_ops.ledger.ledger import Ledger

HOURS_MS = 5 * 3_600_000


def alter(ledger: Ledger, **values: Any) -> None:
    with ledger.write() as connection:
        connection.execute(state_lock.update().values(**values))


def test_an_end_that_no_lock_has_holds_for_an_owner_that_lives_alone(ledger: Ledger) -> None:
    """Taken by a clock that was ahead."""
    taken = StateLock(ledger, "apply")
    taken.take()
    alter(ledger, until_ms=state_lock.c.until_ms + HOURS_MS)
    with pytest.raises(LockedError):  # this very process
        StateLock(ledger, "apply").take()
    alter(ledger, machine="elsewhere")
    other = StateLock(ledger, "apply")
    assert other.take() is not None
    with ledger.write() as connection:
        other.assert_held(connection)
        with pytest.raises(LockLostError):
            taken.assert_held(connection)


def test_a_clock_that_is_set_forward_takes_the_lock_from_nobody_at_work(ledger: Ledger) -> None:
    taken = StateLock(ledger, "apply")
    taken.take()
    alter(ledger, until_ms=state_lock.c.until_ms - HOURS_MS)
    with ledger.write() as connection:
        taken.assert_held(connection)
    with pytest.raises(LockedError):
        StateLock(ledger, "apply").take()
