"""Passwords on the command line, taken out of what other users of the host see of this process (``ps``)."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path

from emq_ops.policy.secrets import url_password

HINT = (
    "emq-ops: other users of this host can read a password on the command line while the command starts; "
    "EMQ_URL takes the server's URL, ${NAME} in a config any other\n"
)


def conceal(argv: Sequence[str]) -> bool:
    """Overwrites the passwords of URLs in `argv` where the system shows them; returns whether there were any. Where the
    platform does not allow that, they stay."""
    urls = [arg.partition("=")[2] if arg.startswith("--") and "=" in arg else arg for arg in argv if "://" in arg]
    found = [password for url in urls if (password := url_password(url))]
    if found and sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError, IndexError):
            _overwrite([password.encode() for password in found])
    return bool(found)


def _overwrite(passwords: Sequence[bytes]) -> None:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start, arg_end
    shown = Path("/proc/self/cmdline").read_bytes()
    if not begin or len(shown) != end - begin:
        return
    hidden = shown
    for password in passwords:
        hidden = hidden.replace(b":" + password + b"@", b":" + b"*" * len(password) + b"@")
        hidden = hidden.replace(b"=" + password, b"=" + b"*" * len(password))
    ctypes.memmove(begin, hidden, len(hidden))
