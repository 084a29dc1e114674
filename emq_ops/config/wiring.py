"""Where everything is: server, state, archive, with references still in them, resolved only when they are used.

From a config file, from an applied revision (whose file may be gone), or from the command line's URLs alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from emq_ops.config.checks import Found, database_faults, remote_faults, server_faults
from emq_ops.config.loader import Loaded
from emq_ops.config.models import ArchiveSection, HttpSection, RemoteSection, Section, ServerSection, StateSection
from emq_ops.config.places import anchored, resolve_url, with_ca
from emq_ops.config.policies import checked
from emq_ops.config.section_json import section_json
from emq_ops.policy.environment import HOST_ALLOW, Environment
from emq_ops.policy.kinds import SECRET
from emq_ops.policy.options import keys, written
from emq_ops.policy.references import ReferenceFault, has_reference, names_of, resolve
from emq_ops.protocol.connection.options import ConnectionOptions
from emq_ops.protocol.connection.url import parse
from emq_ops.protocol.masking import remember
from emq_ops.syntax.errors import Position, SourceError, shown

if TYPE_CHECKING:
    from emq_ops.protocol.server import Server

Json = dict[str, Any]
_SECRETS = {
    name
    for model in (ServerSection, RemoteSection, ArchiveSection, HttpSection)
    for name, key in keys(model).items()
    if key.shape is SECRET
}


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """The object store, resolved. `url` is ``file:/absolute/dir`` or ``s3://bucket/prefix``."""

    url: str
    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None
    storage_class: str | None = None
    addressing: str = "auto"
    ca: str | None = None
    timeout_ms: int = 30_000
    sign: str | None = field(default=None, repr=False)


_FLAGS = {"server.url": "url", "state.url": "state", "archive.local": "local", "archive.remote.url": "remote"}


@dataclass(frozen=True, slots=True)
class Wiring:
    """Sections as the YAML says them, in plain JSON; `base` is what relative paths start from; `marks` says where a
    value stands (by dotted path), for errors."""

    server: Json
    state: Json
    archive: Json | None
    base: Path
    env: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    marks: Mapping[str, Position] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, loaded: Loaded) -> Wiring:
        """From a config that was read."""
        sections: dict[str, Json | None] = {}
        marks: dict[str, Position] = {}
        for name in ("server", "state", "archive"):
            model = getattr(loaded.config, name)
            if model is None:
                sections[name] = None
                continue
            sections[name] = section_json(loaded, (name,), model, marks)
        return cls(
            sections["server"] or {},
            sections["state"] or {},
            sections["archive"],
            loaded.folder.absolute(),
            loaded.env,
            marks,
        )

    @classmethod
    def of_urls(cls, env: Mapping[str, str], base: Path) -> Wiring:
        """All defaults: what there is without a file."""
        return cls(written(ServerSection()), written(StateSection()), None, base.absolute(), env)

    def with_urls(self, *, server: str | None, state: str | None, local: str | None, remote: str | None) -> Wiring:
        """With the command line's URLs over it; relative paths in those start from the working folder."""
        here = Path.cwd()
        given = {"server.url": server, "state.url": state, "archive.local": local, "archive.remote.url": remote}
        flags = {path: Position(f"--{_FLAGS[path]}", 0, 0) for path, url in given.items() if url is not None}
        new = replace(self, marks={**self.marks, **flags})
        if server is not None:
            new = replace(new, server={**written(ServerSection()), "url": anchored(server, here)})
        if state is not None:
            new = replace(new, state={**new.state, "url": anchored(state, here)})
        if local is not None or remote is not None:
            archive = dict(new.archive or written(ArchiveSection()))
            if local is not None:
                archive["local"] = anchored(local, here)
            if remote is not None:
                kept = {k: v for k, v in (archive.get("remote") or {}).items() if k not in ("bucket", "prefix")}
                archive["remote"] = {**kept, "url": anchored(remote, here)}
            new = replace(new, archive=archive)
        return new

    def value(self, path: str, text: str, *, url: bool = False) -> str:
        """`text` with its references resolved. Raises SourceError naming the variable and the line."""
        try:
            return resolve_url(text, self.env) if url else resolve(text, self.env)
        except ReferenceFault as problem:
            raise SourceError(str(problem), self.marks.get(path), path=path, fix=problem.fix) from None

    def _typed(self, model: type[Section], section: Json, path: str, *names: str) -> Any:
        """The model of a section's fields that are no text, resolved. Raises BadInputError."""
        return checked(model, {n: section[n] for n in names if section.get(n) is not None}, self.env, path)

    def _optional(self, section: Json, path: str, name: str) -> str | None:
        raw = section.get(name)
        if raw is None:
            return None
        found = self.value(f"{path}.{name}", str(raw))
        if name in _SECRETS:
            for each in (found, *(found.split(",") if name == "sign" else ())):
                remember(each.strip(), *names_of(str(raw)))
        return found

    def _file(self, section: Json, path: str, name: str) -> str | None:
        found = self._optional(section, path, name)
        return None if found is None else str(self.base / Path(found).expanduser())

    def options(self, verb: str) -> ConnectionOptions:
        """How to connect to the server, resolved."""
        s = self.server
        typed: ServerSection = self._typed(ServerSection, s, "server", "verify", "connect_timeout", "timeout")
        versions = s.get("accept_versions") or ("echomq:3.*",)
        return ConnectionOptions(
            username=self._optional(s, "server", "username"),
            password=self._optional(s, "server", "password"),
            ca=self._file(s, "server", "ca"),
            cert=self._file(s, "server", "cert"),
            key=self._file(s, "server", "key"),
            verify=None if typed.verify else False,
            connect_timeout=typed.connect_timeout / 1000,
            socket_timeout=typed.timeout / 1000,
            client_name=self._optional(s, "server", "client_name"),
            sentinel_username=self._optional(s, "server", "sentinel_username"),
            sentinel_password=self._optional(s, "server", "sentinel_password"),
            verb=verb,
            accept_versions=tuple(self.value("server.accept_versions", v) for v in versions),
        )

    def _url(self, path: str, raw: str, look: Callable[[tuple[str, ...], str], Iterable[Found]]) -> str:
        """A URL resolved and absolute. Raises SourceError where a reference gives what `look` finds fault with, without
        showing what."""
        found = self.value(path, raw, url=True)
        for _, expected, got, fix in look((), found):
            if has_reference(raw):
                expected, got, fix = f"{expected}, which is not what the reference gives", shown(raw), None
            raise SourceError("", self.marks.get(path), path=path, expected=expected, got=got, fix=fix)
        self.confined(path, found)
        return anchored(found, self.base)

    def confined(self, path: str, url: str) -> None:
        """Raises SourceError for a URL with a host that may not be named here."""
        host = self.env.strange_host(url) if isinstance(self.env, Environment) else None
        if host is not None:
            fix = f"if it may: add it to {HOST_ALLOW}"
            raise SourceError(f"the host {shown(host)} may not be asked", self.marks.get(path), path=path, fix=fix)

    def faults(self) -> list[SourceError]:
        """What the environment gives and nothing can be done with. Connects to nothing."""
        found: list[SourceError] = []
        for look in ("server_url", "state_url", "archive_local", "archive_remote"):
            try:
                getattr(self, look)
            except SourceError as fault:
                found.append(fault)
        return found

    @property
    def server_url(self) -> str:
        """Resolved: never to be shown or stored."""
        return self._url("server.url", str(self.server["url"]), server_faults)

    def connect(self, verb: str) -> Server:
        """Opens the server. Raises SourceError before any connection is tried, then what `connect` raises."""

        def renew() -> ConnectionOptions:
            return parse(self.server_url, self.options(verb), self.base).options

        from emq_ops.protocol.server import connect  # and the client, for those who connect

        return connect(self.server_url, replace(self.options(verb), renew=renew), base_dir=self.base)

    @property
    def state_url(self) -> str:
        """Resolved, absolute."""
        found = self._url("state.url", str(self.state["url"]), database_faults)
        return with_ca(found, self._file(self.state, "state", "ca"))

    @property
    def group(self) -> str | None:
        """The group of this host that may read and write what is made, beside its owner."""
        return self._optional(self.state, "state", "group")

    @property
    def archive_local(self) -> str | None:
        """Resolved, absolute; None without an archive."""
        if self.archive is None:
            return None
        found = self._url("archive.local", str(self.archive["local"]), database_faults)
        return with_ca(found, self._file(self.archive, "archive", "local_ca"))

    @property
    def archive_remote(self) -> RemoteSettings | None:
        """Resolved; None without one. Raises SourceError: an unset variable, an empty or bare endpoint."""
        section = (self.archive or {}).get("remote")
        if not section:
            return None
        path = "archive.remote"
        typed: RemoteSection = self._typed(RemoteSection, section, path, "addressing", "timeout")
        if section.get("url") is not None:
            url = self._url(f"{path}.url", str(section["url"]), remote_faults)
        else:
            bucket = self._optional(section, path, "bucket") or ""
            prefix = (self._optional(section, path, "prefix") or "").strip("/")
            if not bucket:
                raise SourceError(
                    "", self.marks.get(f"{path}.bucket"), path=f"{path}.bucket", expected="a bucket", got="nothing"
                )
            url = f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
        endpoint = self._endpoint(section, path, url) if url.startswith("s3:") else None
        said = endpoint or self.env.get("AWS_ENDPOINT_URL") or dict(parse_qsl(urlsplit(url).query)).get("endpoint")
        if url.startswith("s3:") and not said:
            self.confined(f"{path}.url", "https://s3.amazonaws.com")
        return RemoteSettings(
            url=url,
            endpoint=endpoint,
            region=self._optional(section, path, "region"),
            access_key_id=self._optional(section, path, "access_key_id"),
            secret_access_key=self._optional(section, path, "secret_access_key"),
            session_token=self._optional(section, path, "session_token"),
            profile=self._optional(section, path, "profile"),
            storage_class=self._optional(section, path, "storage_class"),
            addressing=typed.addressing,
            ca=self._file(section, path, "ca"),
            timeout_ms=typed.timeout,
            sign=self._optional(self.archive or {}, "archive", "sign"),
        )

    def _endpoint(self, section: Json, path: str, url: str) -> str | None:
        """The store's endpoint, from the file or the environment (None: the URL itself says it, or nobody); one that is
        there must be whole."""
        name = "AWS_ENDPOINT_URL_S3"
        raw = section.get("endpoint")
        if raw is None:
            found, where, mark = self.env.get(name), f"the environment variable {name}", None
            if found is None or "endpoint" in dict(parse_qsl(urlsplit(url).query)):
                return None
        else:
            found = self.value(f"{path}.endpoint", str(raw))
            where, mark = f"{path}.endpoint", self.marks.get(f"{path}.endpoint")
        if re.match(r"https?://[^/]", found):
            self.confined(f"{path}.endpoint", found)
            return found
        what = "is empty" if not found.strip() else "has no scheme" if "://" not in found else "is no http(s) URL"
        raise SourceError(f"{where} {what}", mark, fix="write https:// and the store's host, or take it out")
