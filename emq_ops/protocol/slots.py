"""Where a key lives on a Cluster."""

from __future__ import annotations

import binascii


def slot(key: str | bytes) -> int:
    """The Cluster slot of `key`: CRC-16/XMODEM of its hash tag, modulo 16,384."""
    raw = key.encode("utf-8") if isinstance(key, str) else key
    start = raw.find(b"{")
    if start >= 0:
        end = raw.find(b"}", start + 1)
        if end > start + 1:
            raw = raw[start + 1 : end]
    return binascii.crc_hqx(raw, 0) % 16384
