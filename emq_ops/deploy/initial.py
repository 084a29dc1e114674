"""A first config, from what stands on a server and a few answers. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from emq_ops.protocol import globs
from emq_ops.protocol.errors import one_line


@dataclass(frozen=True, slots=True)
class Answers:
    """What the operator wants. URLs hold references, never secrets; `archive`: the object store, empty for none;
    `keep`: dead jobs that stay; `stream_keep`: records that stay in a stream, 0: all of them."""

    server: str
    state: str = "sqlite:///.emq/state.db"
    archive: str = "file:.emq/bucket"
    max_stalled: int = 1
    keep: int = 10_000
    stream_keep: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """What is said of one queue: a line about it, and its streams."""

    words: str
    streams: tuple[str, ...] = ()


_HEAD = """\
# Written by `emq-ops init`. Next:
#
#   emq-ops validate          every fault, with its line
#   emq-ops plan              what would change (exit 2: something would)
#   emq-ops apply             show the plan, ask, do it
#   emq-ops up                run what was applied
#
# Durations and sizes have a unit (30s 10m 6h 30d, 64MiB). A secret is never written here: ${{NAME}} is read from the
# environment when it is used. `emq-ops config show QUEUE` says which line holds for a queue.

server:
  url: {server}

state:                          # revisions, runs, deaths; several hosts share postgresql://user:${{PGPASSWORD}}@host/emq_ops
  url: {state}

"""
_ARCHIVE = """\
archive:                        # what is trimmed is stored here first, and proven to be there
  local: sqlite:///.emq/archive.db
  remote:
    url: {archive}

"""
_NO_ARCHIVE = """\
# Without an archive nothing is trimmed: what goes would be lost.
# archive: {remote: {url: "s3://bucket/prefix"}}

"""
_DEFAULTS = """\
defaults:                       # for every queue that does not say otherwise
  stalled:                      # leases that lapsed go back to wait, or to the dead letters
    every: 30s
    max_stalled: {max_stalled}              # so many counted stalls dead-letter a job
    lease: 30s                  # the longest lease that your workers take
"""
_DEAD = """\
  dead:                         # the trim of dead jobs
    every: 10m
    keep: {keep}                 # so many stay; the others go into the archive first
    archive: true
"""
_STREAM = "      {name}: {{every: 5s{keep}}}{note}\n"


def first_config(answers: Answers, queues: Mapping[str, Found]) -> str:
    """The YAML, with what it means beside it."""
    quoted = {name: json.dumps(getattr(answers, name)) for name in ("server", "state", "archive")}
    parts = [_HEAD.format(**quoted), _ARCHIVE.format(**quoted) if answers.archive else _NO_ARCHIVE]
    parts.append(_DEFAULTS.format(max_stalled=answers.max_stalled))
    parts.append(_DEAD.format(keep=answers.keep) if answers.archive else "")
    parts.append("\nqueues:" + ("\n" if queues else " {}\n  # orders: {stalled: {max_stalled: 3}}\n"))
    for name, found in sorted(queues.items()):
        streams = found.streams if answers.archive else ()
        parts.append(f"  {json.dumps(globs.escaped(name))}:{'' if streams else ' {}'}  # {one_line(found.words)}\n")
        if streams:
            parts.append("    streams:\n")
        keep = f", keep: {answers.stream_keep}" if answers.stream_keep else ""
        note = "" if keep else "  # archived, and left whole on the server: keep: 1000 or max_age: 1d trims it"
        parts += [_STREAM.format(name=stream, keep=keep, note=note) for stream in streams]
    return "".join(parts)
