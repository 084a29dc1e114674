"""``emq-ops acl``: the least rights of a role."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from emq_ops.cli.options import new_app, options_of
from emq_ops.cli.output import emit_one
from emq_ops.protocol.acl import Role, line, rules
from emq_ops.protocol.errors import BadInputError

app = new_app()


@app.command()
def acl(
    ctx: typer.Context,
    role: Annotated[Role, typer.Argument(help="reader, worker, daemon or operator.")],
    queue: Annotated[list[str] | None, typer.Option("--queue", help="Just this queue; repeatable.")] = None,
    user: Annotated[str | None, typer.Option(help="Its name (emq-ops-ROLE).", metavar="NAME")] = None,
    native: Annotated[bool, typer.Option("--native", help="With the EchoMQ module's commands.")] = False,
) -> None:
    """Print the least rights of a role, as a line of a server's aclfile. Connects to nothing.

    The user is on and has no password: append >PASSWORD or #SHA256 to the line. Whoever may add to a stream (XADD) may
    also trim it by MAXLEN or MINID: a worker that records completions can lose what is not archived yet.

    Examples:

      emq-ops acl worker --queue orders

      emq-ops acl daemon --user emq-daemon
    """
    if user is not None and (not user or not user.isprintable() or any(c.isspace() for c in user)):
        raise BadInputError("can't be a user's name", where="--user", fix="a word without spaces")
    output = options_of(ctx).output
    if output == "table":
        sys.stdout.write(line(role, queue or [], user=user, native=native) + "\n")
        return
    row = {"role": role, "user": user or f"emq-ops-{role}", "queues": queue or []}
    emit_one({**row, "rules": rules(role, queue or [], native=native)}, output)
