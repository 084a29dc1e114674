"""The archive's local database and object store: imported when one of them is opened, since much hangs on it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from emq_archive.local.store import SqlStore, open_local
from emq_archive.ports import Remote
from emq_archive.remote import open_remote
from emq_ops.cli.state import is_absent
from emq_ops.config.wiring import RemoteSettings

_SECRETS = ("access_key_id", "secret_access_key", "session_token")


@contextlib.contextmanager
def local_for_a_look(url: str) -> Iterator[SqlStore]:
    """Opens the archive's local database; where it is a file that nobody made yet an empty one, gone afterwards:
    looking must not make one."""
    if not is_absent(url):
        with open_local(url) as store:
            yield store
        return
    with tempfile.TemporaryDirectory(prefix="emq-ops-") as folder, open_local(f"sqlite:///{folder}/empty") as store:
        yield store


def remote_of(settings: RemoteSettings, renew: Callable[[], RemoteSettings | None] | None = None) -> Remote:
    """Opens the object store of resolved settings; `renew` resolves them again. Raises BadInputError."""
    options: dict[str, Any] = {}

    def secrets() -> dict[str, Any]:
        now = settings if renew is None else renew() or settings
        return {name: getattr(now, name) for name in _SECRETS}

    if settings.url.startswith("s3:"):
        options = {
            "endpoint": settings.endpoint,
            "region": settings.region,
            "storage_class": settings.storage_class,
            "path_style": None if settings.addressing == "auto" else settings.addressing == "path",
            "access_key_id": settings.access_key_id,
            "secret_access_key": settings.secret_access_key,
            "session_token": settings.session_token,
            "profile": settings.profile,
            "ca": settings.ca,
            "timeout_ms": settings.timeout_ms,
        }
    return open_remote(settings.url, sign=settings.sign, renew=secrets, **options)
