"""A dead man's switch: a URL that is asked for as long as the daemon does its work."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from emq_ops.config.models import HeartbeatSection
from emq_ops.config.places import resolve_url
from emq_ops.policy.environment import Environment, value_of
from emq_ops.policy.references import references
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.masking import remember

SECONDS = 10.0
"""How long one may take."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        """Where it points to was not named by anybody."""


class Heartbeat:
    """Asks in a thread of its own. `well`: whether the daemon does its work; `failed`: told once, until one is taken
    again."""

    def __init__(self, well: Callable[[], bool], env: Mapping[str, str], failed: Callable[[str], None]) -> None:
        self._well, self._env, self._failed = well, env, failed
        self._section: HeartbeatSection | None = None
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, section: HeartbeatSection | None) -> None:
        """From now on to this one; None: to none."""
        self._section = section
        if section is not None and self._thread is None:
            self._thread = threading.Thread(target=self._work, name="heartbeat", daemon=True)
            self._thread.start()
        self._changed.set()

    def _work(self) -> None:
        told = False
        while True:
            self._changed.clear()
            section = self._section
            if section is not None and self._well():
                try:
                    self._ask(section.url)
                    told = False
                except (EmqError, OSError, ValueError) as fault:
                    if not told:
                        told = True
                        self._failed(f"{type(fault).__name__}: {getattr(fault, 'reason', '') or fault}")
            self._changed.wait(None if section is None else section.every / 1000)

    def _ask(self, said: str) -> None:
        for token in references(said):
            remember(value_of(self._env, token.name) or "", token.name)
        url = resolve_url(said, self._env)
        if not url.startswith(("http://", "https://")):
            raise ValueError("not an http or https URL")
        if isinstance(self._env, Environment) and (strange := self._env.strange_host(url)) is not None:
            raise ValueError(f"the host {strange} may not be asked")
        opener = urllib.request.build_opener(_NoRedirects)
        with opener.open(urllib.request.Request(url, headers={"User-Agent": "emq-ops"}), timeout=SECONDS) as answer:
            answer.read(1024)
