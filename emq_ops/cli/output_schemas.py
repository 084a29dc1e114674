"""What the JSON of commands looks like, with a version each: a field that goes or changes its meaning makes a new one.

A field is written ``name:kind``: s text, i a whole number, n a number, b true or false, o a mapping, l a list, ls a
list of texts, * anything; with ``?`` it may be null, with ``-`` before it, it may be absent. ``[...]`` is a list of
rows of such fields, ``{...}`` one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_KINDS: dict[str, Any] = {
    "s": {"type": "string"},
    "i": {"type": "integer"},
    "n": {"type": "number"},
    "b": {"type": "boolean"},
    "o": {"type": "object"},
    "l": {"type": "array"},
    "ls": {"type": "array", "items": {"type": "string"}},
    "*": {},
}


@dataclass(frozen=True, slots=True)
class Output:
    """The JSON of one command. `many`: a list of rows; `fields`: in the language above."""

    version: int
    many: bool
    fields: str


_WHY = "held_until_ms:i? held_by:s? held_why:s?"
OUTPUTS = {
    "config show": Output(1, False, "queue:s entries:ls values:[path:s,value:*,from:s]"),
    "context ls": Output(1, True, "name:s current:b production:b config:ls url:s? state:s? local:s? remote:s?"),
    "drift": Output(1, True, "address:s queue:s setting:s applied:* live:* -lost:b"),
    "history": Output(
        1,
        True,
        "revision:i made:s kind:s who:s added:i changed:i removed:i files:[path:s,sha256:s] sha256:s why:s",
    ),
    "plan": Output(
        1,
        False,
        "format:s version:i kind:s made:s base_revision:i? changes:b "
        "summary:{add:i,change:i,remove:i,drift:i} interrupted:o? "
        "steps:[number:i,sign:s,op:s,address:s,queue:s?,kind:s,fields:l,write:o?,effect:o,loss:ls,notes:ls] "
        "drift:[address:s,queue:s,setting:s,applied:*,live:*] warnings:ls refusals:ls losses:ls",
    ),
    "ps": Output(
        1,
        True,
        "queue:s task:s leader:s every:s last:s? next:s? late_ms:i? overdue_ms:i? runs:i missed:i skipped:i "
        f"failures:i error:s? wedged:s? {_WHY} maintenance_until_ms:i? maintenance_by:s? maintenance_why:s?",
    ),
    "queue ls": Output(
        1,
        True,
        "queue:s waiting:i pending:i in_lanes:i more_lanes:b lanes:i active:i scheduled:i dead:i oldest_waiting_ms:i? "
        f"oldest_lease_ms:i? lapsed:i overdue:i paused:b {_WHY} protected:b last_death_ms:i? archive_lag_ms:i? "
        "leader:s problems:l error:s?",
    ),
    "runs ls": Output(
        1,
        True,
        "id:s kind:s queue:s status:s started_ms:i ended_ms:i? trigger:s holder:s token:i slices:i policy:o counts:o "
        "error:s? took_ms:i?",
    ),
    "stream groups": Output(1, True, "group:s consumers:i pending:i lag:i? oldest_ms:i? last_delivered:s"),
    "stream ls": Output(
        1, True, "stream:s entries:i first_ms:i? last_ms:i? groups:i pending:i archived_ms:i? error:s?"
    ),
    "stream read": Output(1, True, "stream_id:s evt:s? fields:l"),
    "validate": Output(1, False, "files:ls queues:ls globs:ls sha256:s"),
}


def output_schema(noun: str) -> dict[str, Any]:
    """The JSON Schema of what a command writes with ``--output json``. Raises KeyError."""
    said = OUTPUTS[noun]
    row = _row(said.fields.split())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"emq-ops {noun}",
        "version": said.version,
        **({"type": "array", "items": row} if said.many else row),
    }


def _row(fields: list[str]) -> dict[str, Any]:
    found = dict(_field(text.removeprefix("-")) for text in fields)
    needed = [text.partition(":")[0] for text in fields if text[0] != "-"]
    return {"type": "object", "properties": found, "required": needed, "additionalProperties": False}


def _field(text: str) -> tuple[str, dict[str, Any]]:
    name, _, kind = text.partition(":")
    if kind[0] == "[":
        return name, {"type": "array", "items": _row(kind[1:-1].split(","))}
    if kind[0] == "{":
        return name, _row(kind[1:-1].split(","))
    schema = dict(_KINDS[kind.removesuffix("?")])
    if kind.endswith("?"):
        schema["type"] = [schema["type"], "null"]
    return name, schema
