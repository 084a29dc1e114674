"""Secrets written out: found in fields, URLs and texts, so that they can be refused; and URLs shown without them."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from emq_ops.policy.references import has_reference, references

_QUERY_NAMES = ("password", "passwd", "pass", "pwd", "secret", "token", "key", "sslpassword", "signature")
_KNOWN = re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY-----")
_USERINFO = re.compile(
    r"(?P<head>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^/@?#:]*):(?P<password>(?:\$\{[^}]*\}|[^/?#])*)@", re.DOTALL
)


def field_is_written_out(text: str) -> bool:
    """Whether a field that holds a secret holds anything but one reference (a default would be the secret itself)."""
    found = references(text)
    if len(found) != 1 or found[0].default:
        return True
    return not (text.startswith("${") and text.endswith("}") and text.count("${") == 1)


def url_password(url: str) -> str | None:
    """The password written in `url` (user part or query), or None. A reference is no secret."""
    match = _USERINFO.match(url)
    if match and match["password"]:
        password = match["password"]
        if not has_reference(password) or any(r.default for r in references(password)):
            return password
    try:
        pairs = parse_qsl(urlsplit(url).query, keep_blank_values=False)
    except ValueError:
        return None
    for name, value in pairs:
        if any(name.lower().endswith(secret) for secret in _QUERY_NAMES) and not has_reference(value):
            return value
    return None


def known_secret(text: str) -> bool:
    """Whether `text` holds what can only be a secret: an AWS key id, a private key."""
    return bool(_KNOWN.search(text))


def hide(url: str) -> str:
    """`url` fit to be shown: a password that is no reference becomes ``***``."""
    match = _USERINFO.match(url)
    if match is None and "://" not in url:
        url = re.sub(r"\A([^/@?#:]*):(?!\$\{)[^@]+@", r"\1:***@", url)  # the scheme was forgotten
    if match and match["password"] and not has_reference(match["password"]):
        url = f"{match['head']}{match['user']}:***@{url[match.end() :]}"
    head, mark, query = url.partition("?")
    if mark:
        parts = []
        for part in query.split("&"):
            name, eq, value = part.partition("=")
            secret = any(name.lower().endswith(s) for s in _QUERY_NAMES)
            parts.append(f"{name}{eq}***" if secret and value and not has_reference(value) else part)
        url = f"{head}?{'&'.join(parts)}"
    return url
