"""The fence that a pass hands to its scripts (``lua/lib/fence.lua``)."""

from __future__ import annotations

from dataclasses import dataclass

from emq_ops.protocol.keyspace import Keys


@dataclass(frozen=True, slots=True)
class Fence:
    """A lease as it was taken: `state` is the UUID of the owning database, `token` never repeats, `run` is the run id
    of the server's life. A script checks all three with ``check_fence(KEYS[n], ARGV[i], ARGV[i + 1], ARGV[i + 2])``."""

    keys: Keys
    state: str
    token: int
    run: str

    @property
    def key(self) -> str:
        """The lease's key, one of the script's KEYS."""
        return self.keys.lease

    @property
    def args(self) -> tuple[str, str, str]:
        """State, token and run id: three values of the script's ARGV."""
        return self.state, str(self.token), self.run
