"""Connections: addresses, links, the places where a server is found, retries, the embedded server."""
