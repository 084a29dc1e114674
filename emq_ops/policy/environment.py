"""The environment as a config may use it: which variables references may read, and which hosts URLs may name.

Both are said from outside the config, so that a file that somebody else wrote can't send what is not its own to where
it likes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from urllib.parse import parse_qsl, unquote, urlsplit

ENV_ALLOW = "EMQ_OPS_ENV_ALLOW"
HOST_ALLOW = "EMQ_OPS_HOST_ALLOW"
INCLUDE_ALLOW = "EMQ_OPS_INCLUDE_ALLOW"

_FILE_CHARS = 64 * 1024
_QUERY_HOSTS = ("host", "hostaddr", "endpoint")
_INDIRECT = ("service", "servicefile", "passfile")
"""Options of a PostgreSQL URL by which a file of the host says where, or with which password."""


@dataclass(frozen=True)
class Environment(Mapping[str, str]):
    """Variables. `allow`: globs of names that references may read, None: all; `hosts`: globs of hosts (or
    ``host:port``) that URLs may name, None: all; `resolves`: False where references are looked at and not resolved.

    Reading an item is not confined: what the tool reads for itself is not said by a config.
    """

    variables: Mapping[str, str]
    allow: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    resolves: bool = True

    @classmethod
    def of(cls, values: Mapping[str, str], more: Sequence[str] = (), *, confines: bool = True) -> Environment:
        """As the variables named above confine it. `more`: names that are allowed as well; they confine it by
        themselves where `confines`."""
        allow = _globs(values, ENV_ALLOW)
        if more and (allow is not None or confines):
            allow = (*(allow or ()), *(part.strip() for each in more for part in each.split(",")))
        return cls(values, allow, _globs(values, HOST_ALLOW))

    def unresolved(self) -> Environment:
        """The same, with references that stay as they are written."""
        return replace(self, resolves=False)

    def may_read(self, name: str) -> bool:
        """Whether a reference may read `name`."""
        return self.allow is None or any(fnmatchcase(name, one) for one in self.allow)

    def strange_host(self, url: str) -> str | None:
        """The first host of a URL that is not allowed; None where all are. One that a reference would give is not
        known yet: it is looked at when the reference is resolved."""
        return self.strange(host for host in hosts_of(url) if "${" not in host or self.resolves)

    def strange(self, hosts: Iterable[str]) -> str | None:
        """The first of `hosts` (in lower case) that is not allowed; None where all are."""
        if self.hosts is None:
            return None
        allowed = [one.lower() for one in self.hosts]
        return next((host for host in hosts if not any(_is(host, one) for one in allowed)), None)

    def __getitem__(self, name: str) -> str:
        return self.variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __len__(self) -> int:
        return len(self.variables)

    def __repr__(self) -> str:
        return f"Environment({len(self.variables)} variables)"


def _globs(values: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    said = values.get(name)
    return None if said is None else tuple(part.strip() for part in said.split(",") if part.strip())


def _is(host: str, allowed: str) -> bool:
    if allowed.startswith("["):  # an address of IPv6, no set of characters
        return allowed in (host, _bare(host))
    return fnmatchcase(host, allowed) or fnmatchcase(_bare(host), allowed)


def _bare(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and (":" not in name or name.startswith("[")) else host


def hosts_of(url: str) -> list[str]:
    """Every host that `url` names, with its port where it says one, in lower case: several of a Sentinel's or a
    database's, those in its options, a file that would name them. A local socket or file is none. Of a URL in which
    parsers may see different hosts, the whole is one."""
    parts = urlsplit(url)
    scheme = parts.scheme.split("+")[0]
    if scheme in ("", "embedded", "sqlite", "file", "unix"):
        return []
    if scheme != "s3" and _is_odd(url, parts.netloc):
        return [url.partition("://")[2].lower()]
    found = [] if scheme == "s3" else unquote(parts.netloc.rpartition("@")[2]).split(",")
    for name, value in parse_qsl(parts.query):
        if name.lower() in _QUERY_HOSTS:
            found += hosts_of(value) if "://" in value else value.split(",")
        elif name.lower() in _INDIRECT:
            found.append(f"{name.lower()}={value}")
    return [host.strip().lower() for host in found if host.strip() and not host.startswith("/")]


def value_of(env: Mapping[str, str], name: str) -> str | None:
    """A variable's value; where it is not set, what stands in the file that ``<name>_FILE`` names, read anew each time,
    so that a secret can be rotated under a process. None where there is neither."""
    found = env.get(name)
    path = env.get(f"{name}_FILE") if found is None else None
    if not path:
        return found
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(_FILE_CHARS).rstrip("\r\n")
    except (OSError, UnicodeDecodeError):
        return None


def _is_odd(url: str, netloc: str) -> bool:
    """Whether one parser may end the host where another does not: an ``@`` behind it, a ``#``, a backslash, a blank."""
    rest = url.partition("://")[2]
    return (
        not rest.startswith(netloc)
        or "@" in rest[len(netloc) :]
        or re.search(r"[#\\\s\x00-\x20\x7f]", rest) is not None
    )


def may_read(env: Mapping[str, str], name: str) -> bool:
    """Whether a reference may read `name` of `env`."""
    return not isinstance(env, Environment) or env.may_read(name)


def resolves(env: Mapping[str, str]) -> bool:
    """Whether references are resolved in `env` at all."""
    return not isinstance(env, Environment) or env.resolves
