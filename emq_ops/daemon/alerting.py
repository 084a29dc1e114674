"""Alert events to wherever the config says, by apprise, in a thread of its own: a mute messenger holds up nothing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from typing import Any

from emq_ops.config.hosts import messenger_for
from emq_ops.config.messenger import send
from emq_ops.passes.events import Alerted, Emit, Event


class Alerting:
    """Sends Alerted events on. `failed` is told of an alert that nobody took."""

    def __init__(self, env: Mapping[str, str], failed: Emit) -> None:
        self._targets: list[tuple[str, frozenset[str]]] = []
        self._env, self._failed = env, failed
        self._waiting: queue.Queue[Alerted] = queue.Queue(maxsize=1000)
        self._thread: threading.Thread | None = None

    def follow(self, sections: list[dict[str, Any]]) -> None:
        """From now on to these: ``alerts:`` of a revision, references unresolved."""
        self._targets = [(str(s["url"]), frozenset(s.get("on") or ())) for s in sections]
        if self._targets and self._thread is None:
            self._thread = threading.Thread(target=self._work, name="alerts", daemon=True)
            self._thread.start()

    def __call__(self, event: Event) -> None:
        """Takes an event; all but alerts pass by."""
        if isinstance(event, Alerted) and self._targets:
            try:
                self._waiting.put_nowait(event)
            except queue.Full:
                self._failed(event)

    def _work(self) -> None:
        while True:
            event = self._waiting.get()
            for url, kinds in self._targets:
                if kinds and event.kind not in kinds:
                    continue
                try:
                    messenger = messenger_for(url, self._env)
                    taken = messenger is not None and send(
                        messenger, f"emq-ops: {event.kind} on {event.queue}", event.text
                    )
                except Exception:  # noqa: BLE001 - a variable that is not set, a host that may not be asked, or whatever a messenger raises
                    taken = False
                if not taken:
                    self._failed(event)
