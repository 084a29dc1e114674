"""Connections to PostgreSQL: none of their waits is without a bound.

The driver waits for ever for a server that hangs (a frozen host, a cut cable), and a statement's own timeout is kept by
the server that hangs.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator
from typing import Any, ClassVar, TypeVar

import psycopg
from sqlalchemy import Engine, ExceptionContext, create_engine, event
from sqlalchemy.engine import URL

from emq_ops.database.faults import ends_session
from emq_ops.database.profile import Profile
from emq_ops.protocol.deadline import remaining
from emq_ops.protocol.errors import EmqError

CONNECT_SECONDS = 10
GRACE_SECONDS = 1.0
"""So much later than the server's own timeout the connection is cut, and so long a rollback may take in any case."""
_RV = TypeVar("_RV")

# Both say on stderr what we raise, where nobody configured logging.
for _name in ("psycopg", "sqlalchemy"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Bounded(psycopg.Connection[Any]):
    """A connection that is closed when an answer takes longer than `most` seconds, or than the caller's deadline
    (`emq_ops.protocol.deadline`, or `until`, on the monotonic clock)."""

    most: ClassVar[float] = 120.0
    until: float | None = None

    def wait(self, gen: Any, *args: Any, **more: Any) -> Any:
        """As of the base. Raises OperationalError when the time is up."""
        return super().wait(self._bounded(gen), *args, **more)

    def _is_over(self, begun: float, now: float) -> bool:
        bound = remaining()  # asked anew: a process that is to end brings it nearer in the middle of a wait
        until = self.until is not None and now >= self.until
        return until or now - begun >= self.most or (bound is not None and bound <= 0)

    def _bounded(self, gen: Generator[Any, Any, _RV]) -> Generator[Any, Any, _RV]:
        begun, over_since = time.monotonic(), None
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted  # 0 now and then, when nothing came
                now = time.monotonic()
                if ready or not self._is_over(begun, now):
                    over_since = None
                elif over_since is None:
                    over_since = now
                elif now - over_since >= GRACE_SECONDS:
                    self.close()
                    raise psycopg.OperationalError(f"no answer within {now - begun:.1f} s")
                wanted = gen.send(ready)
        except StopIteration as over:
            result: _RV = over.value
            return result


def open_postgres(url: URL, profile: Profile, renew: Callable[[], URL] | None = None) -> Engine:
    """An engine for `url`; no connection is made yet. The session's settings are ours, before those of the URL's own
    ``options``. `renew`: gives the URL with user and password as they are now, for each new session."""
    kind: Any = type("Bounded", (Bounded,), {"most": profile.statement})
    ours = {
        "statement_timeout": int(1000 * profile.statement),
        "lock_timeout": int(1000 * min(profile.busy, profile.statement)),
        "idle_in_transaction_session_timeout": int(1000 * profile.idle),
        "default_transaction_isolation": "read\\ committed",
    }
    own = url.query.get("options", "")
    defaults: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, "application_name": profile.application}
    arguments = {key: value for key, value in defaults.items() if key not in url.query}
    said = [*(f"-c {name}={value}" for name, value in ours.items()), *([own] if isinstance(own, str) else own)]
    arguments["options"] = " ".join(said).strip()
    engine = create_engine(url, pool_pre_ping=True, connect_args=arguments, **profile.pool)

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, words: Any, named: Any) -> Any:
        if renew is not None:
            with contextlib.suppress(EmqError):  # then the old ones are tried
                now = renew()
                said = {"user": now.username, "password": now.password}
                named.update({name: value for name, value in said.items() if value is not None})
        return kind.connect(*words, **named)

    @event.listens_for(engine, "handle_error")
    def _judge(context: ExceptionContext) -> None:
        # The pool then ends every session that it opened before: after a failover all of them are of the old primary.
        if ends_session(context.original_exception):
            context.is_disconnect = True

    return engine
