"""How the words of a command line become values.

Typer would build a pydantic schema for each parameter, which costs a command more than all that it does: texts,
numbers, paths, choices and lists of them are converted here, and everything else is left to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer.core
from typer._coercion import build_runtime_param

from emq_ops.protocol.errors import one_line

Convert = Callable[[str], Any]


class Conversion:
    """Stands for typer's own conversion of one parameter: a value, or several."""

    def __init__(self, one: Convert) -> None:
        self._one = one

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Returns the value of a parameter. Raises BadParameter."""
        try:
            if param.multiple or param.nargs == -1:
                return [self._one(each) for each in value or ()]
            return None if value is None else self._one(value)
        except ValueError as fault:
            raise typer.BadParameter(str(fault), ctx=ctx, param=param) from None


def convert_without_schemas() -> None:
    """Has typer take our conversions from now on, where the type of a parameter is one that we convert."""
    setattr(typer.core, "build_runtime_param", _conversion_of)  # noqa: B010  # it calls nothing but `coerce` of it


def _conversion_of(described: Any) -> Any:
    wanted, said = described.annotation, described.parameter_info
    if get_origin(wanted) is list:
        [wanted] = get_args(wanted)
    if get_origin(wanted) is Literal:
        return Conversion(_choice(get_args(wanted)))
    if wanted in (int, float):
        return Conversion(_number(wanted, said.min, said.max))
    if wanted in _SIMPLE:
        return Conversion(_SIMPLE[wanted])
    return build_runtime_param(described)


def _choice(choices: tuple[Any, ...]) -> Convert:
    def convert(text: str) -> Any:
        if text not in choices:
            raise ValueError(f"'{one_line(text)}' is not one of {', '.join(choices)}")
        return text

    return convert


def _number(kind: type[int] | type[float], least: float | None, most: float | None) -> Convert:
    what = "a whole number" if kind is int else "a number"

    def convert(text: str | float) -> int | float:
        try:
            found = kind(text)
            if math.isnan(found):
                raise ValueError
        except ValueError:
            raise ValueError(f"'{one_line(str(text))}' is not {what}") from None
        if (least is not None and found < least) or (most is not None and found > most):
            bounds = (
                f"at least {least}" if most is None else f"at most {most}" if least is None else f"{least} to {most}"
            )
            raise ValueError(f"{found} is not {bounds}")
        return found

    return convert


def _switch(text: str | bool) -> bool:
    if isinstance(text, bool):
        return text
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off", ""):
        return False
    raise ValueError(f"'{one_line(text)}' is neither true nor false")


_SIMPLE: dict[Any, Convert] = {str: str, bool: _switch, Path: Path}
