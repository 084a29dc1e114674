"""The command tree: a table of nouns, each loaded only when it is named, and one handler of errors."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import typer

from emq_ops.cli.conversion import convert_without_schemas
from emq_ops.cli.exits import EXIT_BAD_INPUT, EXIT_ERROR, EXIT_INTERRUPTED, exit_code
from emq_ops.cli.lazy import Commands, LazyGroup, Table
from emq_ops.cli.options import global_options
from emq_ops.cli.output import say_held
from emq_ops.cli.table import look, look_anew
from emq_ops.passes.registry import PASSES
from emq_ops.policy.words import nearest
from emq_ops.protocol.errors import BadInputError, EmqError, one_line

COMMANDS: Table = {
    # See `lazy.Table`; listing them imports none of them.
    "acl": ("acl", "Print the least rights of a role, as a line of a server's aclfile."),
    "apply": ("apply", "Show the plan, ask, and do it: settings on the server, then one revision."),
    "archive": ("archive", "Keep what streams and dead sets let go: fold, look, read, prove, query, bring back."),
    "audit": ("audit", "What died, when and why; what restarts did; what another threshold would have done."),
    "bug-report": (
        "bug_report",
        "Write versions, the config with its references, facts of the server, the last runs and alerts into one file.",
    ),
    "completion": (
        "completion.command",
        "Print the script that completes commands, queues, runs, contexts and playbooks in a shell.",
    ),
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
    "events": ("events", "Follow what a queue's workers publish: progress, cancellations, what batch workers settled."),
    "hold": (
        "hold",
        "Hold queues: for that long, or until `release`, no pass runs on them, by a daemon or by hand.",
    ),
    "import": ("import_", "Write a config from the settings that stand on a live server."),
    "init": ("init", "Look at a server, ask six things at most, and write an annotated config."),
    "job": ("job", "Find jobs, see one, act on some."),
    "lane": ("lane", "See the lanes of a queue, bound them, stop them."),
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
    "release": ("release", "End the hold of queues."),
    "rollback": ("rollback", "Go back to an earlier revision: its content becomes a new one."),
    "runs": ("runs", "What passes did: when, on which queue, by whom, how much."),
    "schema": (
        "schema",
        "Print the JSON Schema of the config file, for editors; or of a command's JSON (`schema output NOUN`).",
    ),
    "show": ("show", "Print a revision: what it changed, and what it says."),
    "state": ("state_commands", "The state: its lock, its journal, and moving it."),
    "stream": ("stream", "See the event streams of a queue, read, follow, add to them."),
    "sweep": ("sweep", "Recover lapsed leases of queues, and dead-letter what stalled too often."),
    "top": (
        "top",
        "Watch queues: depths, rates, what is oldest, deaths, lag, next runs, what is wrong; pause, requeue.",
    ),
    "trim": ("trim", "Delete dead jobs beyond what the policy keeps, each with its row, logs and flow books."),
    "undo": (
        "undo",
        "Take back what a run did: removed jobs come back, whole; requeued ones that still wait are dead again.",
    ),
    "up": ("up", "Run the applied revision: every pass on time, one leader a queue."),
    "validate": ("validate", "Check the config: every fault in a line of its own."),
    "worker": ("", "Put a job into a queue, work it from the shell, cancel a job."),
    "worker cancel": (
        "worker_cancel:cancel_jobs",
        "Ask for jobs' cancellation: waiting ones are removed, a worker that holds one is told.",
    ),
    "worker enqueue": ("worker_enqueue:enqueue_job", "Put a job into a queue, and print its id."),
    "worker ls": (
        "worker_list:ls",
        "List who works: leases by queue, and the clients that are parked until something is to claim.",
    ),
    "worker run": (
        "worker:run",
        "Work a queue with a Python function until SIGTERM or Ctrl-C; a second one ends it at once.",
    ),
}


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


GROUPS = {
    "See": ("top", "queue", "lane", "job", "dead", "stream", "events", "worker", "ps", "runs"),
    "Act": ("hold", "release", "maintenance", "sweep", "trim", "promote", "undo", "rehydrate", "play"),
    "Deploy": (
        *("init", "validate", "plan", "apply", "up", "drift", "history", "show", "rollback", "destroy", "import"),
        *("config", "schema", "context"),
    ),
    "Archive": ("archive",),
    "Investigate": ("audit", "doctor", "bug-report"),
    "Maintain": ("state", "acl", "conformance", "demo"),
}
"""The nouns of the help, by what one is about to do."""
VERBS = {
    "requeue": "dead requeue",
    "remove": "dead remove",
    "pause": "queue pause",
    "resume": "queue resume",
    "drain": "queue drain",
    "obliterate": "queue obliterate",
    "cancel": "job cancel",
    "find": "job find",
    "ls": "queue ls",
    "enqueue": "worker enqueue",
}
"""Verbs without their noun, and where they are."""


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
