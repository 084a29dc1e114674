"""Where the daemon's page listens, and who could ask there."""

from __future__ import annotations

import ipaddress

from emq_ops.protocol.errors import BadInputError

TOKEN_FIX = "http: {token: '${EMQ_OPS_TOKEN}'}, or listen on 127.0.0.1"


def address(listen: str) -> tuple[str, int]:
    """Host and port. Raises BadInputError for what is no address."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not port.isascii() or int(port) > 65535 or (":" in host and host[0] != "["):
        raise BadInputError(f"'{listen}' is no address", where="http.listen", fix="address:port, e.g. 127.0.0.1:9119")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this host's processes reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def require_token(listen: str, token: str | None) -> None:
    """Raises BadInputError for an empty token, and where others than this host's processes could ask without one."""
    if token == "":
        raise BadInputError("the token is empty", where="http.token", fix="set its variable, or leave it out")
    if token is None and not is_loopback(address(listen)[0]):
        raise BadInputError(
            f"'{listen}' can be reached from elsewhere, and there is no token", where="http.listen", fix=TOKEN_FIX
        )
