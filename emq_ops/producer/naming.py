"""Names of an application as ids of the wire."""

from __future__ import annotations

import hashlib

from emq_ops.protocol.ids import MAX_SNOWFLAKE, encode62


def lane_of(name: str) -> str:
    """Returns the lane (``GRP...``) of a tenant, customer or whatever else has a lane: the same for the same name, in
    every process, and another one for another name. Its number is a hash, so it says nothing of when."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    return "GRP" + encode62(int.from_bytes(digest[:8], "big") & MAX_SNOWFLAKE)
