"""Free TCP ports on 127.0.0.1."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """`count` different ports that are free now, below 55,535 (a Cluster bus may want port + 10,000)."""
    held: list[socket.socket] = []
    found: list[int] = []
    try:
        while len(found) < count:
            sock = socket.socket()
            held.append(sock)
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
            if port < 55_535:
                found.append(port)
        return found
    finally:
        for sock in held:
            sock.close()
