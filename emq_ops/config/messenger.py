"""Messengers by their URL, from apprise."""

from __future__ import annotations

import logging
from typing import Any

from emq_ops.protocol.extras import need


def messenger_of(url: str) -> Any:
    """What sends to `url` (``notify(title=..., body=...)`` returns whether it was taken), or None where apprise knows
    none. It follows no redirect, whatever the URL says of them. Takes a moment: the library is heavy, and most have no
    alerts."""
    apprise = need("apprise")

    # Its own words hold whole URLs, tokens included; what matters is said by who asks.
    library = logging.getLogger("apprise")
    library.propagate = False
    library.addHandler(logging.NullHandler())
    messenger = apprise.Apprise.instantiate(url, asset=apprise.AppriseAsset(http_redirects=False))
    if messenger is not None:
        messenger.redirects = False
    return messenger


def send(messenger: Any, title: str, body: str) -> bool:
    """Sends plain text: to who shows HTML, the signs of texts that strangers wrote are escaped. Returns whether it was
    taken."""
    apprise = need("apprise")

    return bool(apprise.Apprise(services=[messenger]).notify(title=title, body=body, body_format="text"))


def says_a_secret(messenger: Any) -> bool:
    """Whether its URL holds what the library would hide."""
    return bool(messenger.url(privacy=True) != messenger.url(privacy=False))


def places_of(messenger: Any, url: str) -> list[str]:
    """Where it sends to, in lower case: the host that `url` names, with a mail server that it names beside it; where
    the service has a host of its own, as ``slack`` does, the scheme; where it may be either, both."""
    templates = [str(one) for one in messenger.templates]
    port = f":{messenger.port}" if messenger.port else ""
    named = any("{host}" in one for one in templates) and messenger.host
    found = [f"{messenger.host}{port}"] if named else []
    if not named or not all("{host}" in one for one in templates):
        found.append(url.partition(":")[0])
    mail = getattr(messenger, "smtp_host", None)
    return [one.lower() for one in (*found, *([mail] if mail else []))]
