"""What the frame hands a pass."""

from __future__ import annotations


class Context:
    """One run under way."""
