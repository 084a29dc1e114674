"""The killable child: evaluates what could loop for ever or eat memory, under limits that the kernel enforces.

One process, started when it is first needed, JSON lines over its pipes. It has no environment, no open files of ours,
a bound on memory and a bound on CPU time for each template; whatever it does, it can only be lost.
"""

from __future__ import annotations

import json
import re
import resource
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from jinja2 import TemplateError, UndefinedError

from emq_ops.playbook.sandbox import MAX_VALUE, Compiled, Compiler, TooMuchHere

CPU_SECONDS = 1.0
WALL_SECONDS = 30.0
"""For a child that waits instead of working, which no template can make it do; only a stopped host can."""
MEMORY_BYTES = 512 << 20

ENV_PREFIX = "EMQ_PLAY_"
"""Variables of the environment that every playbook may read; others must be allowed by name."""


class EvaluationError(ValueError):
    """A template that could not be evaluated. `undefined`: because something is undefined."""

    def __init__(self, what: str, *, undefined: bool = False) -> None:
        super().__init__(what)
        self.undefined = undefined


def make_lookup(allowed: Mapping[str, str | None]) -> Any:
    """The function ``lookup('env', NAME)``; `allowed`: the names that may be read (beside those that begin
    with ENV_PREFIX), None where unset."""

    def lookup(*what: Any, **other: Any) -> Any:
        if (
            len(what) != 2
            or what[0] != "env"
            or not isinstance(what[1], str)
            or not what[1]
            or set(other) - {"default"}
        ):
            given = ", ".join(repr(part)[:40] for part in what)
            raise EvaluationError(f"lookup({given}) is not taken; only lookup('env', NAME), also with default=...")
        name = what[1]
        if name not in allowed and not name.startswith(ENV_PREFIX):
            raise EvaluationError(f"the environment's '{name}' may not be read (allow it with --allow-env {name})")
        value = allowed.get(name)
        if value is None and "default" not in other:
            raise EvaluationError(f"'{name}' is not set in the environment", undefined=True)
        return other["default"] if value is None else value

    return lookup


def describe(fault: BaseException) -> str:
    """What a template raised, in one clause."""
    if isinstance(fault, TemplateError):
        return fault.message or type(fault).__name__
    if isinstance(fault, EvaluationError):
        return str(fault.args[0] if fault.args else fault) or type(fault).__name__
    if isinstance(fault, RecursionError):
        return "nested too deeply"
    if isinstance(fault, ZeroDivisionError):
        return "division by zero"
    if isinstance(fault, OverflowError) and not isinstance(fault.args[0], str):
        return "a number too large to count with"
    if isinstance(fault, MemoryError):
        return "it takes too much memory"
    if isinstance(fault, re.error):
        return f"not a regular expression: {fault}"
    return str(fault) or type(fault).__name__


class Evaluator:
    """Runs compiled templates: those bounded by their syntax in place, the others in the child. Thread-safe."""

    def __init__(self, allowed_env: Mapping[str, str | None]) -> None:
        self._allowed = dict(allowed_env)
        self._lookup = make_lookup(self._allowed)
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def evaluate(self, compiled: Compiled, values: Mapping[str, Any], *, expression: bool) -> Any:
        """The value as plain data. Raises EvaluationError."""
        if not (compiled.plain and compiled.light(values)):
            return self._ask(compiled.source, values, expression)
        try:
            return compiled.run(values, self._lookup)
        except TooMuchHere:
            return self._ask(compiled.source, values, expression)
        except Exception as fault:  # noqa: BLE001  # whatever a filter raises is the template's fault
            undefined = isinstance(fault, UndefinedError) or getattr(fault, "undefined", False)
            raise EvaluationError(describe(fault), undefined=undefined) from None

    def _ask(self, source: str, values: Mapping[str, Any], expression: bool) -> Any:
        asked = {"source": source, "values": values, "expression": expression, "env": self._allowed}
        with self._lock:
            child = self._child or self._start()
            line = self._exchange(child, json.dumps(asked).encode("utf-8") + b"\n")
            if not line.endswith(b"\n"):
                self._end()
                code = child.returncode
                if code in (-signal.SIGPROF, -signal.SIGXCPU):
                    raise EvaluationError(f"takes more than {CPU_SECONDS:g} s of CPU: does it loop for ever?")
                raise EvaluationError("its evaluation was ended: it takes too much memory or time")
        reply = json.loads(line)
        if "error" in reply:
            raise EvaluationError(reply["error"], undefined=reply["undefined"])
        return reply["value"]

    def _start(self) -> subprocess.Popen[bytes]:
        code = f"import sys; sys.path[:] = {sys.path!r}; from emq_ops.playbook.evaluator import serve; serve()"
        # Isolated (-I), without our environment, in its own group so that Ctrl-C reaches us alone.
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,
        )
        return self._child

    @staticmethod
    def _exchange(child: subprocess.Popen[bytes], request: bytes) -> bytes:
        """The child's reply line; cut short when it died or hangs."""
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(request)
            child.stdin.flush()
        except BrokenPipeError:
            return b""
        found = b""
        with selectors.DefaultSelector() as waiting:
            waiting.register(child.stdout, selectors.EVENT_READ)
            while not found.endswith(b"\n") and waiting.select(WALL_SECONDS):
                part = child.stdout.read1(1 << 20)  # type: ignore[attr-defined]  # a BufferedReader
                if not part:
                    break
                found += part
        return found

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            for pipe in (self._child.stdin, self._child.stdout):
                if pipe is not None:
                    pipe.close()
            self._child.wait()
            self._child = None

    def close(self) -> None:
        """Ends the child, if there is one."""
        with self._lock:
            self._end()


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _answer(compiler: Compiler, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        compiled = (compiler.expression if asked["expression"] else compiler.template)(asked["source"])
        value = compiled.run(asked["values"], make_lookup(asked["env"]))
        text = json.dumps({"value": value})
        if len(text) > 2 * MAX_VALUE:
            return {"error": f"a value larger than {MAX_VALUE >> 20} MiB", "undefined": False}
    except Exception as fault:  # noqa: BLE001  # as in `Evaluator.evaluate`
        undefined = isinstance(fault, UndefinedError) or getattr(fault, "undefined", False)
        return {"error": describe(fault), "undefined": undefined}
    return {"value": value}


def serve() -> None:
    """The child's loop: a request a line in, a reply a line out, until its input ends."""
    compiler = Compiler(None)
    _limit()
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # SIGPROF kills: nothing handles it
        reply = _answer(compiler, asked)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(json.dumps(reply).encode("utf-8") + b"\n")
        sys.stdout.buffer.flush()
