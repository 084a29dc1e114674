"""Entries and globs under another name (``moved:``): a rename is no destroy and create. Pure."""

from __future__ import annotations

import re

from emq_ops.deploy.document import Document
from emq_ops.protocol import globs


def renames(desired: Document, applied: Document) -> dict[str, str]:
    """Queue or glob of `desired` -> the one of `applied` that it was. What is there already under the new name, or not
    there any more under the old, is none."""
    found: dict[str, str] = {}
    queues, selectors = set(applied.queues), set(applied.globs or {})
    for old, new in desired.moved:
        if globs.is_glob(old) and globs.is_glob(new):
            if old in selectors and new not in selectors and new in (desired.globs or {}):
                found[new] = old
            taken = [(queue, name) for queue in queues if (name := _renamed(queue, old, new)) is not None]
        else:
            taken = [(globs.literal(old), globs.literal(new))]
        for queue, name in taken:
            if queue in queues and queue not in desired.queues and name in desired.queues and name not in queues:
                found[name] = queue
    return found


def with_renames(applied: Document, found: dict[str, str]) -> Document:
    """`applied` as if it had said the new names. Settings stand on the server under the old ones: of those it says
    nothing."""
    if not found:
        return applied
    queues, selectors = dict(applied.queues), dict(applied.globs or {})
    for new, old in found.items():
        if old in queues:
            queues[new] = {name: section for name, section in queues.pop(old).items() if name != "settings"}
        if old in selectors:
            selectors[new] = selectors.pop(old)
    data = {**applied.data, "queues": queues}
    return Document(data if applied.globs is None else {**data, "globs": selectors})


def _renamed(queue: str, old: str, new: str) -> str | None:
    """The name that a queue of the glob `old` has by the glob `new`: what the wildcards took stays."""
    pattern, parts = "", globs.parts(new)
    for part in globs.parts(old):
        pattern += {"*": "(.*)", "?": "(.)"}.get(part, re.escape(globs.literal(part)))
    taken = re.fullmatch(pattern, queue, re.DOTALL)
    if taken is None:
        return None
    left = list(taken.groups())
    return "".join((left.pop(0) if left else "") if part in ("*", "?") else globs.literal(part) for part in parts)
