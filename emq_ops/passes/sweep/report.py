"""What a stalled sweep hands back."""

from __future__ import annotations

from dataclasses import dataclass, field

from emq_ops.passes.report import PassReport


@dataclass(slots=True)
class SweepReport(PassReport):
    """A stalled sweep. `recovered`: back to wait (of them `exempted` uncounted, `forced` counted for having been exempt
    too often in a row); `dead`: dead-lettered; `ghosts`: ids without a row that were removed; `found_dead`: deaths by
    others that the ledger learnt of. `replayed`: slices of an earlier pass that this one recorded. `more`: the time
    ran out with leases still due. `status`: done, held, stopped (a guard refused; `stopped_by` says which).
    """

    max_stalled: int = 1
    restart: str = "exempt"
    slices: int = 0
    recovered: int = 0
    exempted: int = 0
    forced: int = 0
    dead: int = 0
    ghosts: int = 0
    found_dead: int = 0
    replayed: int = 0
    interruption: int | None = None
    competitors: list[str] = field(default_factory=list)
    recovered_jobs: list[str] = field(default_factory=list)
    exempted_jobs: list[str] = field(default_factory=list)
    dead_jobs: list[str] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do and nothing to say."""
        counts = (self.recovered, self.dead, self.ghosts, self.found_dead, self.replayed)
        return self.status == "done" and not any(counts) and not self.notes

    def counts(self) -> dict[str, int]:
        """The numbers, for the ledger."""
        names = ("recovered", "exempted", "forced", "dead", "ghosts", "found_dead")
        return {name: getattr(self, name) for name in names if getattr(self, name)}
