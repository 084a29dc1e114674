"""Which life a lease is of: the order of evidence, pure; and what two looks at a server show."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emq_ops.ledger.holds import Window
from emq_ops.ledger.interruptions import Contact, Counted, Interruption
from emq_ops.passes.observe.evidence import JudgingContext, LapsedLease, Verdict, epoch_proves, judge
from emq_ops.passes.observe.interruptions import compare
from emq_ops.passes.observe.queue_state import QueueState

NOW = 1_800_000_000_000
RUN, OLD = "b" * 40, "a" * 40
CUT = Interruption("mail", "restart", OLD, RUN, NOW - 9000, NOW - 5000, NOW - 4000, census_ms=NOW - 4000, id=7)
JOB = "JOB0STJaaaaaaa"


def lease(deadline: int = NOW - 100, attempts: int | None = 3, epoch: str = "") -> LapsedLease:
    return LapsedLease(JOB, deadline, attempts, epoch)


def scene(**more: object) -> JudgingContext:
    return dataclasses.replace(JudgingContext(RUN, interruption=CUT, lease_ms=30_000), **more)


COUNTED = {JOB: Counted(JOB, 3, NOW - 100)}
LATE = dataclasses.replace(CUT, census_ms=None)
WINDOW = Window("*", NOW - 200, NOW - 50)


@pytest.mark.parametrize(
    ("given_lease", "given_scene", "verdict"),
    [
        (lease(), JudgingContext(RUN), Verdict(False, "none")),
        (lease(), JudgingContext(RUN, windows=[WINDOW]), Verdict(True, "window")),
        (lease(NOW - 201), JudgingContext(RUN, windows=[WINDOW]), Verdict(False, "none")),
        (lease(NOW - 50), JudgingContext(RUN, windows=[WINDOW]), Verdict(True, "window")),
        (lease(epoch=RUN), scene(windows=[WINDOW], census=COUNTED), Verdict(True, "window")),
        # An epoch of this run proves a lease of this life, even against the census.
        (lease(epoch=RUN), scene(census=COUNTED), Verdict(False, "epoch")),
        # Unless an interruption ended since.
        (lease(epoch=RUN), scene(census=COUNTED, epoch_proves=False), Verdict(True, "census", 7)),
        # An old epoch alone proves nothing: script claims do not clear it.
        (lease(epoch=OLD), scene(), Verdict(False, "census")),
        (lease(epoch=OLD), scene(census=COUNTED), Verdict(True, "census", 7)),
        (lease(), scene(census=COUNTED), Verdict(True, "census", 7)),
        (lease(attempts=4), scene(census=COUNTED), Verdict(False, "census")),  # claimed again since
        (lease(NOW - 99), scene(census=COUNTED), Verdict(False, "census")),  # its deadline moved
        (lease(attempts=None), scene(census={JOB: Counted(JOB, None, NOW - 100)}), Verdict(True, "census", 7)),
        # Longer than any lease of before could stand: may have been claimed between the end and the census.
        (
            lease(NOW + 26_000),
            scene(census={JOB: Counted(JOB, 3, NOW + 26_000)}),
            Verdict(True, "census-uncertain", 7),
        ),
        # Without a census, the clock.
        (lease(NOW + 24_999), scene(interruption=LATE), Verdict(True, "clock", 7)),
        (lease(NOW + 25_000), scene(interruption=LATE), Verdict(False, "clock")),
        (lease(NOW - 8000), scene(interruption=LATE, lease_ms=1000), Verdict(True, "clock", 7)),
        (lease(NOW - 3999), scene(interruption=LATE, lease_ms=1000), Verdict(False, "clock")),
    ],
)
def test_the_order_of_evidence(given_lease: LapsedLease, given_scene: JudgingContext, verdict: Verdict) -> None:
    assert judge(given_lease, given_scene) == verdict


ENTRIES = {
    "absent": None,
    "same": Counted(JOB, 3, NOW - 100),
    "claimed again": Counted(JOB, 2, NOW - 100),
    "extended": Counted(JOB, 3, NOW - 900),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("seen", ["no interruption", "census", "no census in time"])
def test_every_combination_of_evidence(seen: str, entry: str) -> None:
    """Window, then epoch, then census, then clock: each decides only where those before it are silent."""
    cut = {"no interruption": None, "census": CUT, "no census in time": LATE}[seen]
    counted = ENTRIES[entry]
    census = {} if counted is None else {JOB: counted}
    for window, epoch, proves, longest in itertools.product(
        (True, False), (RUN, OLD, ""), (True, False), (30_000, 4_000)
    ):
        found = judge(
            lease(epoch=epoch),
            scene(
                windows=[WINDOW] if window else [],
                interruption=cut,
                epoch_proves=proves,
                census=census,
                lease_ms=longest,
            ),
        )
        if window:
            wanted = True
        elif cut is None or (epoch == RUN and proves):
            wanted = False
        elif cut is CUT:
            wanted = entry == "same"
        else:
            wanted = CUT.ended_ms + longest > NOW - 100
        assert found.exempt == wanted, (window, epoch, proves, longest, found)
        assert (found.interruption is not None) == (found.exempt and not window)


@given(
    before=st.lists(st.integers(1, 600_000), max_size=20),
    after=st.lists(st.integers(1, 600_000), max_size=20),
    lease_ms=st.integers(1, 600_000),
)
def test_a_census_in_time_is_never_wrong(before: list[int], after: list[int], lease_ms: int) -> None:
    """However unequal the leases are: whoever is in it unchanged is exempt, whoever came later is not."""
    census = {f"JOB{i:011d}": Counted(f"JOB{i:011d}", 1, NOW + length) for i, length in enumerate(before)}
    where = scene(census=census, lease_ms=lease_ms)
    for job, entry in census.items():
        assert judge(LapsedLease(job, entry.deadline_ms, 1, ""), where).exempt
        assert not judge(LapsedLease(job, entry.deadline_ms + 1, 1, ""), where).exempt  # kept alive since
        assert not judge(LapsedLease(job, entry.deadline_ms, 2, ""), where).exempt
    for i, length in enumerate(after):
        assert not judge(LapsedLease(f"JOB1{i:010d}", NOW + length, 1, ""), where).exempt


def under(*kinds: tuple[str | None, str]) -> list[Interruption]:
    return [dataclasses.replace(CUT, run_before=before, kind=kind) for before, kind in kinds]


@pytest.mark.parametrize(
    ("interruptions", "primary_before", "proves"),
    [
        ([], False, True),
        (under((OLD, "restart")), False, True),
        (under((None, "restart")), False, True),
        (under((OLD, "failover")), False, True),
        (under((OLD, "failover")), True, False),  # it has been a primary before: an old stamp looks the same
        (under((RUN, "outage")), False, False),
        (under((OLD, "restart"), (RUN, "outage")), False, False),
    ],
)
def test_what_an_epoch_proves(interruptions: list[Interruption], primary_before: bool, proves: bool) -> None:
    assert epoch_proves(RUN, interruptions, primary_before=primary_before) is proves


SIGHT = QueueState("mail", RUN, "r2", False, 100, NOW, 5, "S", 0, 0, 0, 50, 10, False, None)
CONTACT = Contact(RUN, "r2", NOW - 60_000, token=5, completed=50, failed=10)


def seen(**more: object) -> QueueState:
    return dataclasses.replace(SIGHT, **more)


def known(**more: object) -> Contact:
    return dataclasses.replace(CONTACT, **more)


def told(before: Contact | None, now: QueueState, *, loaded: bool = False) -> tuple[object, ...] | None:
    cut = compare(before, now, loaded=loaded)
    return None if cut is None else (cut.kind, cut.started_ms, cut.ended_ms, cut.went_back)


def test_what_two_looks_show() -> None:
    assert told(None, SIGHT) is None
    assert told(None, SIGHT, loaded=True) == ("restart", None, SIGHT.born_ms, False)
    assert told(CONTACT, SIGHT) is None
    assert told(CONTACT, seen(uptime_s=20, run_id="c")) == ("restart", NOW - 60_000, NOW - 19_000, False)
    # A process that lived when we talked to another one took its place.
    assert told(CONTACT, seen(run_id="c")) == ("failover", NOW - 60_000, NOW, False)
    assert told(CONTACT, seen(run_id="c", uptime_s=20, promoted=True)) == ("failover", NOW - 60_000, NOW, False)
    # The same process, demoted and promoted again in between.
    assert told(CONTACT, seen(replid="r3", promoted=True)) == ("failover", NOW - 60_000, NOW, False)
    assert told(CONTACT, seen(replid="r3")) is None  # it only lost its replicas
    assert told(known(lost=True), SIGHT) == ("outage", NOW - 60_000, NOW, False)
    # What was there and is no more.
    assert told(known(went_back=True), SIGHT) == ("rewind", NOW - 60_000, NOW, True)
    assert told(known(completed=51), seen(run_id="c", uptime_s=20)) == ("restart", NOW - 60_000, NOW - 19_000, True)
    assert told(known(completed=51), SIGHT) is None  # obliterated: nothing happened to the server
    assert told(known(failed=11), seen(run_id="c", uptime_s=20, failed=0)) == (
        "restart",
        NOW - 60_000,
        NOW - 19_000,
        False,
    )
