"""What was set aside: members that a script can't take, which stay where they stand and are passed over."""

from __future__ import annotations

from emq_ops.protocol.queue import Queue


def count(q: Queue) -> int:
    """Returns how many are named; at most 1,000 are."""
    return int(q.server.read("HLEN", q.keys.aside))


def listing(q: Queue) -> dict[str, str]:
    """Returns each member that is named (a job, usually; odd bytes escaped), with its set and the reason."""
    flat = q.server.read("HGETALL", q.keys.aside)
    texts = [text.decode("utf-8", "backslashreplace") for text in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def tidy(q: Queue) -> int:
    """Forgets what is not where it stood any more: claimed by others, mended, removed. Returns how many."""
    flat = q.server.read("HGETALL", q.keys.aside)
    pairs = [part for m, text in zip(flat[::2], flat[1::2], strict=True) for part in (m, text.partition(b": ")[0])]
    return int(q.run("aside_tidy", [q.keys.aside], q.keys.base, *pairs)) if pairs else 0
