"""Words on stderr about what may lose data, where nothing is damaged yet: they change no exit code."""

from __future__ import annotations

from pathlib import Path

from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import say
from emq_ops.database.profile import file_of
from emq_ops.passes.observe.durability import network_disk, server_risks
from emq_ops.protocol.server import Server


def tell_risks(context: CommandContext, server: Server | None) -> None:
    """Says how the server (None: it does not answer) and the disks below our databases may lose data."""
    lines = [] if server is None else server_risks(server)
    urls = [context.wiring.state_url]
    urls += [context.local_url] if context.wiring.archive_local is not None else []
    for path in (Path(file) for url in urls if (file := file_of(url)) is not None):
        kind = network_disk(path)
        if kind is not None:
            lines.append(
                f"{path} lies on a network file system ({kind}), which does not keep SQLite's locks: use a local disk, "
                "or PostgreSQL"
            )
    for line in dict.fromkeys(lines):
        say(f"emq-ops: note: {line}")
