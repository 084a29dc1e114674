"""Replaying recorded transitions against a server, through the public calls (``emq-ops conformance``)."""
