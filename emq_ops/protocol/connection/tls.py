"""TLS: its files, looked at before anything is connected to, so that a wrong path is not taken for a server that is
away; and what wraps a socket. Its library is imported by who uses it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from emq_ops.protocol.connection.options import ConnectionOptions
from emq_ops.protocol.connection.url import Target
from emq_ops.protocol.errors import BadInputError


def check_files(target: Target) -> None:
    """Raises BadInputError for a CA, certificate or key that is missing, unreadable, no PEM, or of no use."""
    options = target.options
    if not target.tls:
        if options.ca or options.cert or options.key:
            raise BadInputError("TLS files for a URL without TLS", where=target.where, fix="use a rediss:// URL")
        return
    if options.key and not options.cert:
        raise BadInputError("a key without a certificate", where=target.where, fix="give cert= too")
    for path in (options.ca, options.cert, options.key):
        if path and not os.path.isfile(path):
            raise BadInputError("no such file", where=path, fix="give the path of a PEM file")
    import ssl

    context = ssl.create_default_context()
    if options.ca:
        _use(options.ca, lambda: context.load_verify_locations(options.ca))
    if options.cert:
        cert = options.cert
        _use(cert, lambda: context.load_cert_chain(cert, options.key))


def wrap(sock: socket.socket, host: str, options: ConnectionOptions) -> socket.socket:
    """TLS over a connected socket: certificate and name are verified, unless the options say otherwise. Raises
    ssl.SSLError."""
    import ssl

    context = ssl.create_default_context()
    if options.verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.cert:
        context.load_cert_chain(options.cert, options.key)
    if options.ca:
        context.load_verify_locations(options.ca)
    return context.wrap_socket(sock, server_hostname=host)


def _use(path: str, load: Callable[[], None]) -> None:
    try:
        load()
    except OSError as fault:  # ssl.SSLError is one
        raise BadInputError(
            f"can't be used: {fault.strerror or fault}", where=path, fix="a PEM file; the key must fit the certificate"
        ) from fault
