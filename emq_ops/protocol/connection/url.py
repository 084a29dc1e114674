"""One URL to one target: parsed strictly, and shown without its secrets.

    redis://[user:password@]host[:port][/db]         rediss://... with TLS
    unix:///path/to/socket[?db=1]
    redis+sentinel://host[:port],host/name[/db]      rediss+sentinel://...
    redis+cluster://host[:port],host                 rediss+cluster://...
    embedded  |  embedded:DIR

Query: db, ca, cert, key, verify, connect_timeout, socket_timeout, patience, client_name, username, password,
sentinel_username, sentinel_password.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote

from emq_ops.protocol.connection.options import ConnectionOptions
from emq_ops.protocol.errors import BadInputError

AddressKind = Literal["standalone", "sentinel", "cluster", "embedded"]
Address = str | tuple[str, int]
"""A unix socket's path, or host and port."""

_SHAPE = re.compile(r"(rediss?|unix|rediss?\+(?:sentinel|cluster))://([^/?#]*)(/[^?#]*)?(?:\?([^#]*))?", re.DOTALL)
_SECRETS = re.compile(r"(?<=[?&])((?:sentinel_)?password)=[^&#]*")
_NUMBERS = ("connect_timeout", "socket_timeout", "patience")
_TEXTS = ("ca", "cert", "key", "client_name", "username", "password", "sentinel_username", "sentinel_password")
_QUERY = (*_NUMBERS, *_TEXTS, "db", "verify")
_FORMS = (
    "redis://host:port, rediss://, unix:///path, redis+sentinel://host,host/name, redis+cluster://host,host, embedded"
)


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL. `addresses`: one, or those of the Sentinels or of some Cluster nodes; `service`: the name that the
    Sentinels know the primary by; `folder`: of an embedded server; `where`: the URL as it may be shown."""

    kind: AddressKind
    addresses: tuple[Address, ...]
    options: ConnectionOptions
    where: str
    tls: bool = False
    service: str = ""
    folder: Path | None = None


def redact(url: str) -> str:
    """`url` without its secrets, for errors, plans and logs."""
    head, separator, rest = url.partition("://")
    if not separator:
        head, rest = "", url
    # A badly quoted password may hold "/", "?" or "@": whatever stands before the last "@" is never shown.
    userinfo, at, rest = rest.rpartition("@")
    user, colon, _ = userinfo.partition(":")
    shown = f"{user}:***@" if colon else f"{userinfo}{at}"
    return head + separator + shown + _SECRETS.sub(r"\1=***", rest)


def parse(url: str, options: ConnectionOptions | None = None, base_dir: str | Path | None = None) -> Target:
    """The target that `url` names. `base_dir`: what relative folders of ``embedded`` are relative to (default: the
    working directory). Raises BadInputError, and never shows a password."""
    given = options or ConnectionOptions()
    if url == "embedded" or url.startswith("embedded:"):
        folder = Path(base_dir or ".") / (url.partition(":")[2] or ".emq")
        return Target("embedded", (), given, f"embedded server in {folder}", folder=folder.absolute())
    where = redact(url)
    match = _SHAPE.fullmatch(url)
    if match is None:
        raise BadInputError("not a server URL", where=where, fix=f"one of {_FORMS}")
    scheme, netloc, path, query = match[1], match[2], unquote(match[3] or ""), match[4] or ""
    userinfo, _, hosts = netloc.rpartition("@")
    found = _query(query, where)
    if userinfo:
        user, colon, password = userinfo.partition(":")
        found.update({"username": unquote(user) or None, "password": unquote(password) if colon else None})
    tls = scheme.startswith("rediss")
    shape = scheme.partition("+")[2]
    service = ""
    if scheme == "unix":
        if hosts or len(path) < 2:
            raise BadInputError("a unix URL has no host, but a path", where=where, fix="unix:///path/to/socket")
        addresses: tuple[Address, ...] = (path,)
    else:
        addresses = _hosts(hosts, 26379 if shape == "sentinel" else 6379, where)
        service, db = _path(path, shape, where)
        if db is not None:
            found["db"] = db
    if len(addresses) > 1 and not shape:
        raise BadInputError(
            "more than one host", where=where, fix="redis+sentinel:// and redis+cluster:// take several"
        )
    if shape == "cluster" and (found.get("db") or given.db):
        raise BadInputError("a Cluster has database 0 only", where=where, fix="leave the database number out")
    merged = dataclasses.replace(given, **{k: v for k, v in found.items() if getattr(given, k) is None})  # type: ignore[arg-type]  # names and types come from _query
    kind: AddressKind = "sentinel" if shape == "sentinel" else "cluster" if shape == "cluster" else "standalone"
    return Target(kind, addresses, merged, where, tls, service)


def _hosts(text: str, port: int, where: str) -> tuple[Address, ...]:
    found: list[Address] = []
    for one in text.split(","):
        match = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:@\s]+)(?::([0-9]{1,5}))?", one)
        if match is None or (match[2] and not 0 < int(match[2]) < 65536):
            raise BadInputError("not a host" if one else "no host", where=where, fix="host or host:port; [::1]:6379")
        found.append((match[1].strip("[]"), int(match[2] or port)))
    return tuple(found)


def _path(path: str, shape: str, where: str) -> tuple[str, int | None]:
    """The Sentinels' service name and the database number that a path holds."""
    parts = [part for part in path.split("/") if part]
    service = ""
    if shape == "sentinel":
        if not parts:
            raise BadInputError("the Sentinels' name of the primary is missing", where=where, fix=".../name")
        service = parts.pop(0)
    if len(parts) > 1 or (parts and not parts[0].isdecimal()):
        raise BadInputError("not a database number in the path", where=where, fix="a number such as /0")
    return service, int(parts[0]) if parts else None


def _query(query: str, where: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if not re.fullmatch("[a-z_]{1,30}", name):
            # Rather a password with a raw "?" than a misspelt option: not to be shown.
            raise BadInputError("not an option after the '?'", where=where, fix="write special characters as %XX")
        if name not in _QUERY:
            near = difflib.get_close_matches(name, _QUERY, 1)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(_QUERY)}"
            raise BadInputError(f"no option '{name}' of a connection", where=where, fix=hint)
        try:
            found[name] = _value(name, value)
        except (ValueError, KeyError):
            shown = value if re.fullmatch("[A-Za-z0-9.-]{1,20}", value) else "that"
            raise BadInputError(f"{name} can't be '{shown}'", where=where, fix="a positive number, or yes/no") from None
    return found


def _value(name: str, value: str) -> object:
    if name in _NUMBERS:
        seconds = float(value.removesuffix("s"))
        if not 0 < seconds < 86_400:
            raise ValueError(value)
        return seconds
    if name == "db":
        if not value.isdecimal():
            raise ValueError(value)
        return int(value)
    if name == "verify":
        return {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False, "none": False}[value]
    return value
