"""The checking of an archive by and by: the head of each log, and some segments, the longest unchecked first."""

from __future__ import annotations

from dataclasses import dataclass, field

from emq_archive.errors import DamagedArchiveError
from emq_archive.upkeep.sample import Checked, check_some
from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.contract import Work
from emq_ops.passes.frame.order import Order, Prediction
from emq_ops.passes.report import PassReport
from emq_ops.passes.upkeep.declared import VerifyPolicy
from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.errors import DeadlineError

KIND = "archive_damaged"
"""The alert."""


@dataclass(slots=True)
class VerifyReport(PassReport):
    """`checked` segments of `bytes` were read again; `faults`: a line each."""

    checked: int = 0
    bytes: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """That all is well is nothing to tell."""
        return self.status == "done" and not self.faults and not self.notes

    def counts(self) -> dict[str, int]:
        """The numbers, for the ledger."""
        numbers = {"checked": self.checked, "bytes": self.bytes, "faults": len(self.faults)}
        return {name: number for name, number in numbers.items() if number}


class Verification(Work):
    """The pass. What it finds stops the trim, as what ``archive verify`` finds."""

    def report(self, order: Order) -> VerifyReport:
        """An empty report of a run."""
        return VerifyReport(order.queue)

    def run(self, context: Context) -> None:
        """Checks. Raises DamagedArchiveError while an archive of the queue is damaged, after it looked at all, and what
        the stores raise."""
        policy: VerifyPolicy = context.policy
        report: VerifyReport = context.report
        stores = context.services.stores
        context.begin(tell=False)
        left, damaged = Checked(policy.objects, policy.most_bytes), ""
        local, remote = stores.local(), stores.remote()
        refs = local.streams(context.queue)
        turn = context.services.memory.get(context.memory_key, 0) % max(1, len(refs))
        for ref in refs[turn:] + refs[:turn]:  # so that none waits for ever behind the others
            try:
                with deadline(context.budget.left):
                    done = check_some(local, remote, ref, left, now_ms=context.now_ms)
            except DeadlineError:
                report.more = True
                break
            report.checked += done.objects
            report.bytes += done.bytes
            report.faults += done.faults
            if done.fresh:
                text = f"{ref}: {'; '.join(done.faults[:5])}"
                context.alert(KIND, text, context.now_ms, {"stream": ref.stream, "faults": len(done.faults)})
            if done.damage and not damaged:
                damaged = f"the archive of {ref} is damaged: {done.damage}"
        context.services.memory[context.memory_key] = turn + 1
        if damaged:
            fix = "`emq-ops archive reship` where the local database holds it, then `emq-ops archive verify`"
            raise DamagedArchiveError(damaged, where=remote.url, fix=fix)

    def predict(self, context: Context) -> Prediction:
        """How many segments there are to check."""
        local = context.services.stores.local()
        stats = [local.stats(ref).segments for ref in local.streams(context.queue)]
        return Prediction(VerifyReport(context.queue, status="dry"), count=sum(stats))
