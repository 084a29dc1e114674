"""The command tree: a table of nouns, each loaded only when it is named, and one handler of errors."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import typer

from emq_ops.cli.commands import COMMANDS, GROUPS, VERBS
from emq_ops.cli.conversion import convert_without_schemas
from emq_ops.cli.exits import EXIT_BAD_INPUT, EXIT_ERROR, EXIT_INTERRUPTED, exit_code
from emq_ops.cli.lazy import Commands, LazyGroup, Table
from emq_ops.cli.options import global_options
from emq_ops.cli.output import say_held
from emq_ops.cli.table import look, look_anew
from emq_ops.passes.registry import PASSES
from emq_ops.policy.words import nearest
from emq_ops.protocol.errors import BadInputError, EmqError, one_line


def _pass_command(name: str) -> Callable[[], typer.Typer]:
    """What makes the command of a pass that has no module of its own."""
    return lambda: importlib.import_module("emq_ops.cli.passes").app_of(name)


_OTHER_NAMES = {"archive"}
"""Passes whose command has another name."""


def table() -> Table:
    """Every command: COMMANDS, and those of passes that have no module there."""
    names = {one.name: one.summary for one in PASSES if one.name not in _OTHER_NAMES and not one.of_archive}
    passes = {name: (_pass_command(name), text) for name, text in names.items() if name not in COMMANDS}
    return {**passes, **COMMANDS}


class RootGroup(LazyGroup):
    """The tree itself: its help is in groups, and a word that is no command is answered with the nearest."""

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """The nouns of the help, by what one is about to do."""
        texts = dict(self.commands.summaries())
        rest = sorted(texts.keys() - {noun for nouns in GROUPS.values() for noun in nouns})
        for group, nouns in {**GROUPS, "More": tuple(rest)}.items():
            if named := [(noun, texts[noun]) for noun in nouns if noun in texts]:
                with formatter.section(group):
                    formatter.write_dl(named)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As usual; a word that is no noun is answered with the nearest, or with where it went."""
        word = args[0] if args else ""
        if word and not word.startswith("-") and word not in self.commands:
            near = nearest(word, self.commands)
            fix = f"it is `emq-ops {VERBS[word]}`" if word in VERBS else f"did you mean '{near}'?" if near else None
            raise BadInputError(f"no command '{one_line(word)}'", fix=fix or "see emq-ops --help")
        return super().resolve_command(ctx, args)


@functools.cache  # making a command takes longer than many a command does
def root_group() -> LazyGroup:
    """The command tree."""
    found = RootGroup(
        name="emq-ops",
        context_settings={"help_option_names": ["-h", "--help"]},
        commands=Commands(table()),
        help="Operate EchoMQ queues: plan, apply, sweep, trim, archive, audit, play.",
    )
    found.params.extend(global_options())
    return found


def _report(error: EmqError) -> None:
    sys.stderr.write(f"emq-ops: {error}\n")
    cause = error.__cause__ or error.__context__
    while look.verbose and cause is not None:
        text = one_line(str(cause))
        sys.stderr.write(f"  because: {text if isinstance(cause, EmqError) else f'{type(cause).__name__}: {text}'}\n")
        cause = cause.__cause__ or cause.__context__


def invoke(argv: list[str], *, debug: bool = False) -> int:
    """Runs a command line, prints one line for whatever goes wrong, and returns the exit code."""
    convert_without_schemas()
    try:
        code = root_group().main(args=argv, prog_name="emq-ops", standalone_mode=False)
        sys.stdout.flush()
        say_held(failed=code not in (None, 0))
        return code if isinstance(code, int) else 0
    except EmqError as error:
        if debug:
            raise
        say_held()
        _report(error)
        return exit_code(error)
    except (typer.Abort, KeyboardInterrupt):
        sys.stderr.write("emq-ops: interrupted\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our stdout went away (`| head`): nothing is wrong, but the interpreter must not flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as fault:
        if debug:
            raise
        show = getattr(fault, "format_message", None)
        if show is not None:  # typer's own usage errors
            text = str(show())
            context = getattr(fault, "ctx", None)
            # A noun without its verb is answered with the noun's help; everything else is one line.
            is_help = context is not None and text == context.get_help()
            sys.stderr.write(f"{text}\n" if is_help else f"emq-ops: {one_line(text)}\n")
            return EXIT_BAD_INPUT
        text = one_line(f"{type(fault).__name__}: {fault}")
        sys.stderr.write(
            f"emq-ops: fault of emq-ops itself: {text} (set EMQ_OPS_DEBUG=1 for the traceback and report it)\n"
        )
        return EXIT_ERROR
    finally:
        say_held()
        look_anew()  # --wide and the others were of this line
