"""``emq-ops play``: run a playbook."""

from __future__ import annotations

import contextlib
import functools
import gc
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Annotated, TypeVar

import typer

from emq_ops.audit.suspects import suspect
from emq_ops.cli.asking import ask, target_of
from emq_ops.cli.audit_parts import archive_of
from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_BAD_INPUT, EXIT_CHANGES, EXIT_ERROR, EXIT_INTERRUPTED, EXIT_UNREACHABLE
from emq_ops.cli.options import new_app
from emq_ops.cli.output import counted, say
from emq_ops.cli.play_docs import print_modules, print_schema, task_rows
from emq_ops.cli.play_view import view_of
from emq_ops.cli.queues import is_named
from emq_ops.cli.stores import remote_of
from emq_ops.ledger import interruptions
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.snapshot import JobSnapshot
from emq_ops.passes.acts.deadset import DeadJob
from emq_ops.passes.frame.stores import NO_STORES, Stores
from emq_ops.playbook import runner
from emq_ops.playbook.asks import Asks, Confirmation
from emq_ops.playbook.context import Ops, QueuePolicy
from emq_ops.playbook.model import Task
from emq_ops.playbook.play import PlayOptions, prepare, read, resume, shipped
from emq_ops.playbook.runner import Ended
from emq_ops.playbook.select import select
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server

T = TypeVar("T")
app = new_app()

_EXITS = {
    runner.DONE: 0,
    runner.FAILED: EXIT_CHANGES,
    runner.BAD_INPUT: EXIT_BAD_INPUT,
    runner.INTERRUPTED: EXIT_INTERRUPTED,
    runner.DECLINED: EXIT_ERROR,
    runner.LOST: EXIT_UNREACHABLE,
}


@app.command()
def play(
    ctx: typer.Context,
    playbook: Annotated[
        str | None, typer.Argument(help="A file, or a playbook that ships.", metavar="PLAYBOOK")
    ] = None,
    check: Annotated[bool, typer.Option("--check", "--dry-run", help="Change nothing; predict.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show what changes, before and after.")] = False,
    tags: Annotated[list[str] | None, typer.Option("--tags", "-t", help="Only tasks with these tags.")] = None,
    skip_tags: Annotated[list[str] | None, typer.Option("--skip-tags", help="No tasks with these tags.")] = None,
    queues: Annotated[
        list[str] | None, typer.Option("--queues", "-l", help="Only these queues.", metavar="GLOB")
    ] = None,
    extra: Annotated[
        list[str] | None, typer.Option("--extra-vars", "-e", help="A variable, or @FILE.", metavar="NAME=VALUE")
    ] = None,
    start_at: Annotated[str | None, typer.Option("--start-at-task", help="Begin at this task.", metavar="NAME")] = None,
    step: Annotated[bool, typer.Option("--step", help="Ask before every task.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before jobs are removed.")] = False,
    resume_run: Annotated[str | None, typer.Option("--resume", help="Go on with a run.", metavar="RUN")] = None,
    list_tasks: Annotated[bool, typer.Option("--list-tasks", help="List the tasks; run nothing.")] = False,
    list_books: Annotated[bool, typer.Option("--list", help="List the playbooks that ship.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of playbooks.")] = False,
    modules: Annotated[bool, typer.Option("--modules", help="Describe the modules, or the one named.")] = False,
) -> None:
    """Run a playbook on queues. With --allow-env, lookup('env', NAME) may read it.

    Exit 0: every task was fine (also a check that predicts changes); 2: a task failed; 3: a server was lost; 4: the
    playbook or an option is wrong, and nothing was done.

    Examples:

      emq-ops play health-check

      emq-ops play restart-recovery --check --queues 'mail-*'
    """
    context = CommandContext.of(ctx)
    context.options.adds_env = True  # what lookup('env', NAME) may read is asked for by name here
    if schema:
        print_schema()
        return
    if modules:
        print_modules(playbook, context.output)
        return
    if list_books:
        context.emit_rows([{"name": n, "file": str(p)} for n, p in sorted(shipped().items())], ("name", "file"))
        return
    options = PlayOptions(
        check,
        _split(tags, "--tags"),
        _split(skip_tags, "--skip-tags"),
        list(queues or []),
        list(extra or []),
        start_at,
        list(context.options.allow_env),
    )
    if list_tasks:
        book, _, _ = read(_named(playbook))
        taken = select(book, options.tags, options.skip_tags, options.start_at)
        context.emit_rows(task_rows(book, taken), ("play", "queues", "task", "module", "tags", "where"))
        return
    if resume_run is None:
        _named(playbook)
    elif options != PlayOptions(env=options.env):
        raise BadInputError(
            "a resumed run keeps what it was asked", where="--resume", fix="leave the other options out"
        )
    ended = _run(context, playbook, options, resume_run, diff=diff, step=step, yes=yes)
    code = _EXITS[ended.status]
    again = f"emq-ops play --resume {ended.run}"
    if ended.status in (runner.INTERRUPTED, runner.DECLINED, runner.LOST):
        say(f"emq-ops: {ended.reason}; go on with: {again}")
    elif ended.status == runner.BAD_INPUT:
        say(f"emq-ops: {ended.reason}")
    elif ended.status == runner.FAILED and not options.check:
        fell = sum(tally.failed > 0 for tally in ended.tallies.values())
        count = len(ended.tallies) + len(ended.not_begun)
        rest = f", {len(ended.not_begun)} not begun" if ended.not_begun else ""
        say(f"emq-ops: {fell} of {count} queues failed{rest}; with the cause mended, go on with: {again}")
    raise typer.Exit(code)


def _named(playbook: str | None) -> str:
    if playbook is None:
        raise BadInputError("which playbook?", fix=f"a file, or one of {', '.join(sorted(shipped()))}")
    return playbook


def _split(values: Sequence[str] | None, option: str) -> list[str]:
    found = [tag.strip() for value in values or () for tag in value.split(",")]
    if not all(found):
        raise BadInputError("a tag is empty", where=option, fix="an empty one never means all; leave the option out")
    return found


def _run(
    context: CommandContext,
    playbook: str | None,
    options: PlayOptions,
    run: str | None,
    *,
    diff: bool,
    step: bool,
    yes: bool,
) -> Ended:
    view = view_of(context.output, diff=diff)
    stopping = threading.Event()
    prompt = Prompt(stopping, context, yes)
    target = target_of(context)
    asks = Asks(None if yes and not target.production else prompt.confirm, prompt.step if step else None)
    with context.server("play") as server, context.ledger() as ledger:
        ops = ops_of(context, server, ledger)
        if run is not None:
            ready = resume(ops, run, playbook, emit=view, asks=asks, stopping=stopping)
        else:
            ready = prepare(ops, _named(playbook), options, emit=view, asks=asks, stopping=stopping)
        gc.freeze()  # what was imported and read stays; looking at it again and again is a third of a short run
        with prompt.signals():
            try:
                return ready.run()
            finally:
                view.close()
                ops.stores.close()


def ops_of(context: CommandContext, server: Server, ledger: Ledger) -> Ops:
    """What a run works on, from a command line's settings."""
    layers = context.layers

    @functools.cache
    def policy(queue: str) -> QueuePolicy:
        found = layers.effective(queue)
        dead = context.dead(queue)
        streams = {name: context.stream(queue, name) for name in found.streams}
        return QueuePolicy(context.stalled(queue), dead, streams, found.protect, dead.max_removals)

    def find(queue: str, job: str) -> JobSnapshot | None:
        with archive_of(context) as found:
            return found.snapshot(queue, job) if found is not None else None

    def suspects(queue: str) -> Callable[[DeadJob], bool]:
        cuts = interruptions.listing(ledger, queue)
        lease_ms = policy(queue).stalled.lease_ms
        return lambda job: job.known is not None and suspect(queue, job.job, job.known, cuts, lease_ms) is not None

    settings = context.wiring.archive_remote
    there = context.wiring.archive_local is not None and settings is not None
    stores = Stores(context.local, lambda: remote_of(settings)) if there and settings is not None else NO_STORES
    named = functools.partial(is_named, context, server=server)
    return Ops(server, ledger, policy, layers.literals, context.windows(), stores, find, suspects, named)


class Prompt:
    """Asks on stderr; Ctrl-C ends a question at once, and a run after the request in hand."""

    def __init__(self, stopping: threading.Event, context: CommandContext, yes: bool) -> None:
        self._context, self._yes = context, yes
        self._stopping, self._asking, self._needed = stopping, False, False

    def confirm(self, prediction: Confirmation) -> bool:
        """May a destructive task go on?"""
        name = prediction.task.module.name
        for queue, outcome in prediction.outcomes.items():
            if outcome.count:
                say(f"{queue}: {name} would change {outcome.count}" + f", {outcome.removals} jobs would go for good")
        question = f"[{prediction.task.name}] {name} on {counted(prediction.changes, 'queue')}: go on?"
        target = target_of(self._context)
        if target.production:
            return self._answered(lambda: ask(self._context, question, self._yes), False)
        return self._ask(f"[{target.name}] {question}") == "y"

    def step(self, task: Task, queues: Sequence[str]) -> bool | None:
        """Run this task? Raises BadInputError where nobody answers."""
        self._needed = True
        answer = self._ask(
            f"[{task.name}] on {counted(len(queues), 'queue')}: run it? (y)es, (n)o, (c)ontinue without asking"
        )
        return None if answer == "c" else answer == "y"

    def _ask(self, question: str) -> str:
        found = self._answered(lambda: typer.prompt(question, default="n", err=True), "n")
        return str(found).strip().lower()[:1]

    def _answered(self, question: Callable[[], T], no: T) -> T:
        self._asking = True
        try:
            return question()
        except typer.Abort:
            if self._stopping.is_set():
                raise KeyboardInterrupt from None
            if self._needed:
                raise BadInputError("nobody answers", where="--step", fix="run it in a terminal") from None
            return no
        finally:
            self._asking = False

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the run in good order; a second one ends it at once."""

        def handle(_number: int, _frame: FrameType | None) -> None:
            again = self._stopping.is_set()
            self._stopping.set()
            if self._asking or again:
                raise KeyboardInterrupt
            say("emq-ops: ending after the request in hand; once more ends it at once")

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)
