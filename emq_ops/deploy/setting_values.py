"""What a live value of a setting says: as it was applied, lost with the server's data, or left by an apply that did not
end. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emq_ops.deploy import settings
from emq_ops.deploy.document import Document
from emq_ops.deploy.model import LiveQueue
from emq_ops.deploy.variables import Digests, Past, canonical
from emq_ops.policy.references import resolve


class SettingValues:
    """Values beside those of `applied`. `left`: of (queue, setting) the value before and after an apply that did not
    end; `env`, `digests`: what references give, and gave."""

    def __init__(
        self,
        applied: Document,
        left: Mapping[tuple[str, str], tuple[Any, Any]],
        env: Mapping[str, str],
        digests: Digests,
    ) -> None:
        self._applied, self._left, self._env, self._digests = applied, left, env, digests

    def as_applied(self, path: str, old: Any, now: Any) -> bool:
        """Whether the live value is what was applied, though a reference in it gives something else now."""
        if isinstance(old, dict):
            alike = isinstance(now, dict) and old.keys() == now.keys()
            return alike and all(self.as_applied(path, old[name], now[name]) for name in old)
        if isinstance(old, Past):
            return self._digests.was(self._applied, old, now)
        return canonical(resolve(str(old), self._env)) == canonical(str(now))

    def lost(self, facts: LiveQueue, path: str, now: Any) -> bool:
        """Whether `now` is what a server that lost its data was set back to."""
        if facts.lost is None or path in facts.unreadable:
            return False
        if path not in facts.lost:
            return bool(now == settings.unset(path))
        return bool(now == settings.resolved(path, facts.lost[path], self._env))

    def by_us(self, queue: str, path: str, now: Any) -> bool:
        """Whether an apply that did not end left the setting at `now`."""
        left = self._left
        return (queue, path) in left and left[queue, path][1] == now and left[queue, path][0] != now
