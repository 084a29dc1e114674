"""What a daemon says of its health."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


def health(port: int) -> dict[str, Any]:
    """The reply of ``/healthz``, whatever its code."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as reply:
            found: dict[str, Any] = json.load(reply)
    except urllib.error.HTTPError as refused:
        found = json.load(refused)
    return found
