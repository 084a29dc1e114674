"""How long to wait before the next attempt."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import MAX_SPAN_MS


@dataclass(frozen=True, slots=True)
class Backoff:
    """`base` ms after the first failure, `factor` times as much after each further one, at most `longest` ms; then
    moved by up to `jitter` (a share) either way, so that what failed together does not come back together."""

    base: int = 1_000
    factor: float = 2.0
    longest: int = 300_000
    jitter: float = 0.2
    _random: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (0 <= self.base <= self.longest <= MAX_SPAN_MS and 1 <= self.factor <= 100 and 0 <= self.jitter <= 1):
            raise BadInputError(
                f"no such backoff: {self}", fix="0 <= base <= longest (ms), factor 1 to 100, jitter 0 to 1"
            )

    def delay(self, failures: int) -> int:
        """Ms to wait after that many failures in a row (1 or more)."""
        plain = self.base
        for _ in range(failures - 1):
            if plain >= self.longest:
                break
            plain = min(int(plain * self.factor) or 1, self.longest)
        return round(min(plain, self.longest) * (1 + self._random.uniform(-self.jitter, self.jitter)))
