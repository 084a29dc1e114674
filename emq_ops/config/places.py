"""URLs of places: relative paths made absolute, references resolved, both in a form that every parser reads alike."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from emq_ops.policy.references import names_of, resolve
from emq_ops.policy.secrets import url_password
from emq_ops.protocol.masking import remember

_FILE = re.compile(r"(?P<head>sqlite:///|file:(?://(?=/))?|unix://)(?P<path>[^?#]*)(?P<tail>.*)", re.DOTALL)
_QUOTED = {ord(sign): f"%{ord(sign):02X}" for sign in "%?#"}


def anchored(url: str, base: Path) -> str:
    """`url` with a relative file path in it made absolute from `base`; any other URL as it is."""
    if url.startswith("embedded:"):  # a path as it is: nothing in it is quoted
        folder = url.removeprefix("embedded:")
        return url if not folder or "${" in folder else f"embedded:{os.path.normpath(base / Path(folder).expanduser())}"
    match = _FILE.fullmatch(url)
    if match is None or match["path"].startswith("${") or not match["path"] or match["path"] == ":memory:":
        return url
    path = os.path.normpath(base / Path(unquote(match["path"])).expanduser())
    head = (
        "sqlite:///"
        if match["head"].startswith("sqlite")
        else match["head"].split("/")[0] + ("//" if "unix" in match["head"] else "")
    )
    return f"{head}{path.translate(_QUOTED)}{match['tail']}"


def resolve_url(url: str, env: Mapping[str, str]) -> str:
    """`url` resolved; a user, a password, a query value may be any text: they are percent-encoded."""
    user = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://((?:\$\{[^}]*\}|[^/?#])*)@", url, re.DOTALL)
    spans = [user.span(1)] if user else []
    if (query := url.find("?")) >= 0:
        spans.append((query, len(url)))
    out: list[str] = []
    at = 0
    for token in re.finditer(r"\$\{[^}]*\}", url):
        if url[: token.start()].endswith("$"):
            continue
        value = resolve(token[0], env)
        inside = any(low <= token.start() < high for low, high in spans)
        if inside:
            remember(value, *names_of(token[0]))
        out += [resolve(url[at : token.start()], env), quote(value, safe="") if inside else value]
        at = token.end()
    out.append(resolve(url[at:], env))
    found = "".join(out)
    if (password := url_password(found)) is not None:
        remember(unquote(password))
    return found


def with_ca(url: str, ca: str | None) -> str:
    """`url` of PostgreSQL, whose server's certificate and name are verified by the authority in the file `ca`, unless
    it says itself how (``sslmode``); any other URL as it is."""
    parts = urlsplit(url)
    if ca is None or not parts.scheme.startswith("postgres") or "sslmode" in dict(parse_qsl(parts.query)):
        return url
    return f"{url}{'&' if parts.query else '?'}sslmode=verify-full&sslrootcert={quote(ca, safe='/')}"


def tls_words(url: str) -> str:
    """What a resolved URL of a database says of TLS; nothing for a file or a socket of this host."""
    parts = urlsplit(url)
    said = dict(parse_qsl(parts.query))
    if not parts.scheme.startswith("postgres") or not (parts.hostname or said.get("host", "/")[:1] != "/"):
        return ""
    mode = said.get("sslmode", "prefer")
    told = {"verify-full": "verified, with its name", "verify-ca": "verified, its name is not"}
    return f"sslmode {mode}: the server is {told.get(mode, 'not verified; `ca` verifies it')}"
