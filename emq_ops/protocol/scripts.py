"""The one loader of ``lua/``: finds a transition from a checkout, an editable install and a wheel alike.

A line ``--#include lib/<name>.lua`` at the start of a line is replaced by that file, once a script, so that the lane
and ring rules exist in one place. A line ``-- Flags: <name>, <name>`` of its header says what a Cluster must know:
``one-key``: it looks at one key, which it names, and makes none: right wherever that key's slot is on its way.
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass, field
from importlib import resources

from emq_ops.protocol.errors import BadInputError

_INCLUDE = re.compile(r"^--#include (lib/[a-z_]+\.lua)\s*$", re.MULTILINE)
_FLAGS = re.compile(r"^-- Flags: (.+)$", re.MULTILINE)
_KNOWN = frozenset({"one-key"})
_PACKAGE = "emq_ops_lua"
_MOVES = (b"run_id:", b"cmdstat_cluster|setslot:", b"cmdstat_config|resetstat:")
# By plain finds: every script of a Cluster begins with it, and patterns would take four times as long as INFO does.
_PROOF = b"""do local seen, told = '', table.remove(ARGV) if told ~= '' then \
local info = redis.call('INFO', 'server', 'commandstats') \
for _, name in ipairs({ '%s' }) do local at = string.find(info, name, 1, true) \
seen = seen .. (at and string.sub(info, at, string.find(info, '\\r', at, true) - 1) or '') .. ' ' end \
if seen ~= told then return redis.error_reply('TRYAGAIN slots of this node moved meanwhile') end end end """ % (
    b"', '".join(_MOVES)
)


@dataclass(frozen=True, slots=True)
class Script:
    """One transition: its name, full source and SHA-1 (as the server names it)."""

    name: str
    source: bytes = field(repr=False)
    sha: str

    flags: frozenset[str] = frozenset()

    @property
    def one_key(self) -> bool:
        """Whether it is right wherever its key's slot is on its way. Of every other, a Cluster's node proves in the
        same step that no slot of its own began or ceased to move since it was asked."""
        return "one-key" in self.flags


def _read(path: str) -> str:
    try:
        return resources.files(_PACKAGE).joinpath(*path.split("/")).read_text("utf-8")
    except (FileNotFoundError, ModuleNotFoundError) as fault:
        raise BadInputError(f"no script lua/{path}", fix="reinstall emq-ops") from fault


@functools.cache
def load(name: str) -> Script:
    """The script ``lua/<name>.lua`` with its includes in place. Raises BadInputError when there is none, or where it
    has a flag that means nothing."""
    included: set[str] = set()

    def expand(text: str) -> str:
        def put(match: re.Match[str]) -> str:
            if match[1] in included:
                return ""
            included.add(match[1])
            return expand(_read(match[1]))

        return _INCLUDE.sub(put, text)

    text = _read(f"{name}.lua")
    flags = frozenset(flag.strip() for line in _FLAGS.findall(text) for flag in line.split(","))
    if unknown := sorted(flags - _KNOWN):
        raise BadInputError(f"lua/{name}.lua has no flag {unknown[0]!r} to set", fix=f"it may be {sorted(_KNOWN)}")
    source = expand(text).encode("utf-8")
    return Script(name, source, _sha(source), flags)


@functools.lru_cache(maxsize=256)
def in_cluster(script: Script) -> Script:
    """`script` as a Cluster runs it: called with two more KEYS, which are never there, so that a node refuses it
    (TRYAGAIN) as long as the slot moves; unless it is of one key, with one more ARGV: `moves_of` the node, empty for
    none. The script itself does not see them. Lines keep their numbers."""
    head, _, rest = script.source.partition(b"\n")
    drop = b"KEYS[#KEYS] = nil KEYS[#KEYS] = nil " + (b"" if script.one_key else _PROOF)
    source = head + b"\n" + drop + rest if head.startswith(b"#!") else drop + script.source
    return Script(script.name, source, _sha(source), script.flags)


MOVES_OF = ("INFO", "server", "commandstats")
"""The command that `moves_of` reads."""


def moves_of(info: bytes) -> bytes:
    """What changes in a node's INFO when a slot of it begins or ceases to move, and is never the same again: its run id
    and how often CLUSTER SETSLOT was called, or forgotten (CONFIG RESETSTAT)."""
    lines = info.split(b"\r\n")
    return b"".join(next((line for line in lines if line.startswith(name)), b"") + b" " for name in _MOVES)


def _sha(source: bytes) -> str:
    return hashlib.sha1(source, usedforsecurity=False).hexdigest()


def load_all() -> None:
    """Reads every script now: a process that goes on while the tool is upgraded under it must not call new ones."""
    for name in names():
        load(name)


def names() -> list[str]:
    """The names of all transitions that ship, sorted."""
    found = resources.files(_PACKAGE).iterdir()
    return sorted(entry.name[:-4] for entry in found if entry.name.endswith(".lua"))
