"""The ACL users of ``examples/acl`` on a test server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import redis

from emq_ops.protocol.server import Server, connect
from tests.support.valkey import Valkey

FOLDER = Path(__file__).parents[2] / "examples" / "acl"
ROLES = ("reader", "worker", "operator", "daemon")
PASSWORD = "p$4:x # y"


def install(valkey: Valkey) -> None:
    """Loads every role's user, with PASSWORD."""
    with valkey.client() as admin:
        install_on(admin)


def install_on(admin: redis.Redis) -> None:
    """As install, by a client of the server."""
    for role in ROLES:
        words = (FOLDER / f"{role}.acl").read_text().split()
        assert words[0] == "user"
        admin.execute_command("ACL", "SETUSER", words[1], "reset", *words[2:], f">{PASSWORD}")


def install_on_rules(valkey: Valkey, user: str, rules: list[str]) -> None:
    """Installs one user with these rules, with PASSWORD."""
    with valkey.client() as admin:
        admin.execute_command("ACL", "SETUSER", user, "reset", "on", *rules, f">{PASSWORD}")


def connect_as(valkey: Valkey, role: str) -> Server:
    """A connection as that role's user."""
    return connect(f"unix://emq-ops-{role}:{quote(PASSWORD, safe='')}@{valkey.socket}")


@contextlib.contextmanager
def connecting(valkey: Valkey) -> Iterator[Callable[[str], Server]]:
    """Every role's user is installed; the call inside opens a connection as one of them, closed at the end."""
    install(valkey)
    with contextlib.ExitStack() as opened:

        def open_as(role: str) -> Server:
            server = connect_as(valkey, role)
            opened.callback(server.close)
            return server

        yield open_as
