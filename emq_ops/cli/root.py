"""The command tree: a table of nouns, each loaded only when it is named, and one handler of errors."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from emq_ops.cli.exits import EXIT_BAD_INPUT, EXIT_ERROR, EXIT_INTERRUPTED, exit_code
from emq_ops.cli.naming import name_value
from emq_ops.cli.options import global_options
from emq_ops.passes.registry import PASSES
from emq_ops.protocol.errors import EmqError, one_line

COMMANDS: dict[str, tuple[str, str]] = {
    # noun: the module under emq_ops.cli that holds `app`, a Typer (one command: a verb; several: noun and verbs), and
    # the first sentence of its help, so that listing the nouns imports none of them
    "acl": ("acl", "Print the least rights of a role, as a line of a server's aclfile."),
    "apply": ("apply", "Show the plan, ask, and do it: settings on the server, then one revision."),
    "archive": ("archive", "Keep what streams and dead sets let go: fold, look, read, prove, query, bring back."),
    "audit": ("audit", "What died, when and why; what restarts did; what another threshold would have done."),
    "bug-report": ("bug_report", "Write what a report of a fault needs into one file, nothing secret in it."),
    "config": ("config", "The config, as it holds."),
    "conformance": (
        "conformance",
        "Replay recorded transitions against a server and compare replies and whole keyspaces.",
    ),
    "context": ("contexts", "Names for servers and configs, kept in ~/.config/emq-ops, without secrets."),
    "dead": ("dead", "List dead jobs, put them back to wait, take them away."),
    "demo": (
        "demo.command",
        "Show it all in half a minute: workers that succeed, fail, hang and are killed, the daemon at work.",
    ),
    "destroy": ("destroy", "Take the schedules away."),
    "doctor": ("doctor", "Find what no transition repairs, and with --fix mend what is safe."),
    "drift": ("drift", "Say where the live server is not what was applied."),
    "history": ("history", "List the revisions, newest first."),
    "hold": (
        "hold",
        "Hold a queue: for that long, or until `release`, no pass runs on it, by a daemon or by hand.",
    ),
    "import": ("import_", "Write a config from the settings that stand on a live server."),
    "init": ("init", "Look at a server, ask six things at most, and write an annotated config."),
    "maintenance": (
        "maintenance",
        "Windows in which lapsed leases are recovered without counting: deploys, migrations.",
    ),
    "plan": ("plan", "Compare the config with what is applied and with the live server."),
    "play": ("play", "Run a playbook on queues."),
    "ps": ("ps", "Show each task: its leader, last and next run, how late, failures in a row; or the living daemons."),
    "queue": ("queue", "See queues, stop them, let them go on, empty them."),
    "rehydrate": (
        "rehydrate",
        "Bring removed jobs back from the ledger or the archive, as they were when they were last dead.",
    ),
    "release": ("release", "End the hold of a queue."),
    "rollback": ("rollback", "Go back to an earlier revision: its content becomes a new one."),
    "runs": ("runs", "What passes did: when, on which queue, by whom, how much."),
    "schema": ("schema", "Print the JSON Schema of the config file, for editors."),
    "show": ("show", "Print a revision: what it changed, and what it says."),
    "state": ("state_commands", "The state: its lock, its journal, and moving it."),
    "sweep": ("sweep", "Recover lapsed leases of a queue, and dead-letter what stalled too often."),
    "top": (
        "top",
        "Watch queues: depths, rates, what is oldest, deaths, lag, next runs, what is wrong; pause, requeue.",
    ),
    "trim": ("trim", "Delete dead jobs beyond what the policy keeps, each with its row, logs and flow books."),
    "undo": ("undo", "Bring back, whole, every job that a removal or a trim took away."),
    "up": ("up", "Run the applied revision: every pass on time, one leader a queue."),
    "validate": ("validate", "Check the config: every fault in a line of its own."),
    "worker": ("worker", "Put a job into a queue, work it from the shell, cancel a job."),
}


PASS_COMMANDS = "emq_ops.cli.passes"
"""What makes the commands of passes that have no module of their own."""
_OTHER_NAMES = {"archive"}
"""Passes whose command has another name."""


def summaries() -> dict[str, str]:
    """Every noun with the first sentence of its help: those of COMMANDS, and passes that have no module there."""
    passes = {one.name: one.summary for one in PASSES if one.name not in _OTHER_NAMES and not one.of_archive}
    return passes | {noun: text for noun, (_, text) in COMMANDS.items()}


class LazyGroup(TyperGroup):
    """Imports a noun's module when the noun is asked for, and gives every leaf the global options."""

    def list_commands(self, _ctx: Any) -> list[str]:
        return sorted(summaries())

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """The nouns of the help."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(summaries().items()))

    def invoke(self, ctx: Any) -> Any:
        """Ctrl-C leaves as an Abort: typer itself would end without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            found = importlib.import_module(f"emq_ops.cli.{COMMANDS[cmd_name][0]}").app
        elif cmd_name in summaries():
            found = importlib.import_module(PASS_COMMANDS).app_of(cmd_name)
        else:
            return None
        command = typer.main.get_command(found)
        command.name = cmd_name
        add_globals(command)
        return command


def add_globals(command: Any) -> None:
    """Gives `command`, or every leaf below it, the global options."""
    children = getattr(command, "commands", None)
    if children is None or not children:
        for param in command.params:
            name_value(param)
        command.params.extend(global_options())
        return
    for child in children.values():
        add_globals(child)


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def root() -> None:
    """Operate EchoMQ queues: plan, apply, sweep, trim, archive, audit, play."""


def _report(error: EmqError) -> None:
    sys.stderr.write(f"emq-ops: {error}\n")


def invoke(argv: list[str], *, debug: bool = False) -> int:
    """Runs a command line, prints one line for whatever goes wrong, and returns the exit code."""
    command = typer.main.get_command(app)
    command.params.extend(global_options())
    try:
        code = command.main(args=argv, prog_name="emq-ops", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except EmqError as error:
        if debug:
            raise
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
