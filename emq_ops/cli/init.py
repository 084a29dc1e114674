"""``emq-ops init``: a first config from what stands on a server."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import new_app
from emq_ops.cli.output import counted, say
from emq_ops.cli.values import file_of
from emq_ops.config.effective import Layers
from emq_ops.config.loader import load
from emq_ops.deploy.initial import Answers, Found, first_config
from emq_ops.overview.inventory import MOST_KEYS, Inventory, take_inventory
from emq_ops.policy.secrets import hide, url_password
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.files import create_privately

app = new_app()
SHOWN = 20
"""So many queues are told; the file names all."""
USUAL_SERVER = "redis://127.0.0.1:6379"


@app.command()
def init(
    ctx: typer.Context,
    out: Annotated[str, typer.Argument(metavar="FILE", help="A new file.")] = "config.yaml",
    non_interactive: Annotated[
        bool, typer.Option("--non-interactive", help="Ask nothing: --url or EMQ_URL, and what is usual.")
    ] = False,
    keys: Annotated[int, typer.Option("--keys", metavar="N", help="Look at no more keys.", min=1)] = MOST_KEYS,
) -> None:
    """Look at a server, ask six things at most, and write an annotated config. Nothing is changed on the server.

    Then: emq-ops plan, emq-ops apply, emq-ops up.

    Examples:

      emq-ops init --url redis://localhost

      emq-ops init config.yaml --non-interactive --url redis://localhost
    """
    context = CommandContext.of(ctx)
    path = file_of(out)
    if os.path.lexists(path):
        raise BadInputError("there is such a file already", where=out, fix="name a new one: emq-ops init FILE")
    if not (non_interactive or sys.stdin.isatty()):
        raise BadInputError("nobody to ask", fix="--non-interactive, with --url or EMQ_URL")
    answer = (lambda _question, usual: usual) if non_interactive else _ask
    url, written = _server(context, answer, non_interactive)
    wiring = context.places.with_urls(server=url, state=None, local=None, remote=None)
    with wiring.connect("init") as server:
        found = take_inventory(server, most_keys=keys)
    _tell(found)
    text = first_config(_answers(context, answer, written, found), _queues(found))
    try:
        with open(create_privately(path), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as fault:
        raise BadInputError(f"can't write: {fault.strerror}", where=out, fix="name a new file") from None
    Layers(load([path], os.environ)).check()
    named = "" if out == "config.yaml" else f" -c {out}"
    say(f"emq-ops: wrote {out}; look at it, then `emq-ops{named} plan` (nothing was changed on the server)")


Answer = Callable[[str, str], str]


def _ask(question: str, usual: str) -> str:
    return str(typer.prompt(question, default=usual, err=True)).strip()


def _server(context: CommandContext, answer: Answer, silent: bool) -> tuple[str, str]:
    """The server's URL, and as it is written into the file: a reference where it has a secret or came from one."""
    if context.options.url is not None:
        url = context.options.url
        if url_password(url) is None:
            return url, url
        say("emq-ops: the URL has a password: the file says ${EMQ_URL}; set it where commands and the daemon run")
        return url, "${EMQ_URL}"
    if context.env.get("EMQ_URL"):
        return str(context.env.get("EMQ_URL")), "${EMQ_URL}"
    if silent:
        raise BadInputError("which server?", where="--non-interactive", fix="--url URL, or EMQ_URL")
    url = answer("Which server? A password as ${NAME}", USUAL_SERVER)
    if url_password(url) is not None:
        fix = f"write '{hide(url).replace('***', '${NAME}')}', and set NAME"
        raise BadInputError("a password does not go into a config", fix=fix)
    return url, url


def _tell(found: Inventory) -> None:
    """What was found, on stderr."""
    seen = "all" if found.whole else "a part"
    say(f"emq-ops: {counted(len(found.queues), 'queue')} in {found.keys:,} keys ({seen} of the server's)")
    for name, queue in list(found.queues.items())[:SHOWN]:
        say(f"  {one_line(name)}: {queue.words}")
    if len(found.queues) > SHOWN:
        say(f"  and {len(found.queues) - SHOWN} more, which the file names")
    for name, why in found.unread.items():
        say(f"  {one_line(name)}: left out, it can't be read: {why}")


def _queues(found: Inventory) -> dict[str, Found]:
    return {
        name: Found(queue.words, tuple(stream.name for stream in queue.streams)) for name, queue in found.queues.items()
    }


def _answers(context: CommandContext, answer: Answer, server: str, found: Inventory) -> Answers:
    usual, options = Answers(server), context.options
    state = options.state or answer("Where is the state? (several hosts: postgresql://...)", usual.state)
    archive = options.remote or answer("Where to is archived? file:DIR, s3://BUCKET/PREFIX, or none", usual.archive)
    archive = "" if archive.lower() in ("none", "no", "") else archive
    for name, url in (("state", state), ("archive", archive)):
        if url_password(url) is not None:
            fix = f"write '{hide(url).replace('***', '${NAME}')}', and set NAME"
            raise BadInputError("a password does not go into a config", where=name, fix=fix)
    max_stalled = _number(answer("After how many stalls is a job dead?", str(usual.max_stalled)), "stalls", 1)
    keep = usual.keep
    stream_keep = 0
    if archive:
        keep = _number(answer("How many dead jobs stay on the server?", str(usual.keep)), "dead jobs", 0)
        if any(queue.streams for queue in found.queues.values()):
            question = "How many records stay in each stream? 0: all, they are archived and not trimmed"
            stream_keep = _number(answer(question, "0"), "records", 0)
    return Answers(server, state, archive, max_stalled, keep, stream_keep)


def _number(text: str, what: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise BadInputError(f"'{one_line(text[:40])}' is no number of {what}", fix=f"a whole number from {least}")
    return int(text)
