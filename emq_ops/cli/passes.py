"""Commands of passes that have no module of their own, made from what the registry says of them."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Annotated, Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import QueueArg, QueuesArg, new_app
from emq_ops.cli.passing import ByHand, run_by_hand
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.frame.order import Order
from emq_ops.passes.registry import by_name
from emq_ops.policy.kinds import FieldType
from emq_ops.policy.options import Key, keys
from emq_ops.policy.schedule import Schedule
from emq_ops.protocol.errors import BadInputError

_TIMEOUT = "End in time; the next run goes on (30s)."


def app_of(name: str) -> typer.Typer:
    """The command of a pass."""
    what = by_name(name)
    if what is None:
        raise BadInputError(f"no pass '{name}'")
    app = new_app()
    app.command()(_command(what))
    return app


def _flags(what: Pass) -> dict[str, Key]:
    """The fields of the policy that a command line may say."""
    return {
        key.name: key
        for name, key in keys(what.policy).items()
        if name not in keys(Schedule) and isinstance(key.shape, FieldType)
    }


def _command(what: Pass) -> Any:
    flags = _flags(what)

    def run(ctx: typer.Context, queues: list[str] | str, timeout: str | None, dry_run: bool, **given: Any) -> None:
        context, streams = CommandContext.of(ctx), given.pop("target", "")
        said = {flags[name].path[0]: _taken(flags[name], value) for name, value in given.items() if value is not None}

        def order_of(queue: str, target: str) -> Order:
            policy = context.policy(what, queue, target)
            return Order(queue, replace(policy, **said), target, applied=not said)

        selectors = [queues] if isinstance(queues, str) else queues
        run_by_hand(context, what, selectors, ByHand(order_of, timeout, dry_run), streams)

    parameters: list[tuple[str, Any, Any]] = [
        ("ctx", typer.Context, inspect.Parameter.empty),
        ("queues", QueueArg if what.many else QueuesArg, inspect.Parameter.empty),
    ]
    if what.many:
        parameters.append(
            ("target", Annotated[str, typer.Argument(help="The stream, or a glob.")], inspect.Parameter.empty)
        )
    for name, key in flags.items():
        parameters.append((name, Annotated[str | None, typer.Option(help=_help(key), metavar=_metavar(key))], None))
    timeout = typer.Option(help=_TIMEOUT, metavar="DURATION")
    dry = typer.Option("--dry-run", help="Show what would be done; change nothing.")
    parameters += [("timeout", Annotated[str | None, timeout], None), ("dry_run", Annotated[bool, dry], False)]
    run.__name__ = what.name
    run.__doc__ = f"""{what.summary}

    The policy is the config's, with the flags over it. Waits for the queue's lease; beside a live daemon the daemon
    runs it, and its report is shown. Exit 1: a queue is held, or the time ran out.

    Examples:

      emq-ops {what.name} orders{" completions" if what.many else ""} --dry-run

      emq-ops {what.name} 'mail-*'{" completions" if what.many else ""} --timeout 10s
    """
    kind = inspect.Parameter.KEYWORD_ONLY
    run.__annotations__ = {name: hint for name, hint, _ in parameters}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what typer goes by
        [inspect.Parameter(name, kind, default=default, annotation=hint) for name, hint, default in parameters]
    )
    return run


def _help(key: Key) -> str:
    return f"{key.help[:1].upper()}{key.help[1:]}."


def _metavar(key: Key) -> str:
    assert isinstance(key.shape, FieldType)
    return "N" if key.shape.numeric else "VALUE"


def _taken(key: Key, text: str) -> Any:
    """A flag's value. Raises BadInputError."""
    assert isinstance(key.shape, FieldType)
    try:
        return key.shape.given(text)
    except ValueError as fault:
        hint = str(fault) or None
        raise BadInputError(f"expected {key.shape.words}, got '{text}'", where=f"--{key.name}", fix=hint) from None
