"""``lookup('env', NAME)``: what templates may read of the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from emq_ops.syntax.expressions import EvaluationError
from emq_ops.syntax.taint import secret

ENV_PREFIX = "EMQ_PLAY_"
"""Variables of the environment that every playbook may read; others must be allowed by name."""


def make_lookup(allowed: Mapping[str, str | None]) -> Callable[..., Any]:
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
        return other["default"] if value is None else secret(value, name)

    return lookup
