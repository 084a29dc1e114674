"""Settings as flat paths with comparable values, resolved from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emq_ops.policy.environment import resolves
from emq_ops.policy.references import ReferenceFault, has_reference, resolve
from emq_ops.policy.scalars import format_duration, parse_duration
from emq_ops.policy.triggers import parse_cron
from emq_ops.protocol.errors import BadInputError

Env = Mapping[str, str]
Json = dict[str, Any]


def flat(settings: Json | None) -> dict[str, Any]:
    """Path -> value, references as written."""
    if not settings:
        return {}
    out: dict[str, Any] = {name: settings[name] for name in ("paused", "concurrency", "rate") if name in settings}
    for lane, fields in settings.get("lanes", {}).items():
        for name, value in fields.items():
            out[f"lanes/{lane}/{name}"] = value
    for name, fields in settings.get("repeatables", {}).items():
        out[f"repeatables/{name}"] = dict(fields)
    return out


class Flattened:
    """`flat`, once for each settings object: queues that say the same share theirs. It must not outlive them."""

    def __init__(self) -> None:
        self._known: dict[int, dict[str, Any]] = {}

    def of(self, settings: Json | None) -> dict[str, Any]:
        """As `flat`; not to be changed."""
        found = self._known.get(id(settings))
        if found is None:
            found = self._known[id(settings)] = flat(settings)
        return found


def unset(path: str) -> Any:
    """The value of a setting that nobody set."""
    return False if path.split("/")[-1] == "paused" and not path.startswith("repeatables/") else None


def resolved(path: str, value: Any, env: Env) -> Any:
    """`value` with its references resolved and in the form that live values have; as it is where
    none are resolved in `env`. Raises BadInputError."""
    if not resolves(env):
        return value
    if isinstance(value, dict):
        return _repeatable(path, {name: _text(path, part, env) for name, part in value.items()})
    if not has_reference(value):
        return value
    text = _text(path, value, env)
    if isinstance(unset(path), bool):
        if text not in ("true", "false"):
            raise BadInputError(f"{path}: the reference does not give true or false")
        return text == "true"
    if not text.isdecimal():
        raise BadInputError(f"{path}: the reference does not give a whole number")
    return int(text)


def _repeatable(path: str, said: Json) -> Json:
    """As the live one is told: with a period, or the line of cron and its zone."""
    try:
        if "cron" in said:
            cron = parse_cron(said["cron"], said.get("zone"))
            when = {"cron": cron.line, "zone": cron.zone}
        else:
            when = {"every": format_duration(parse_duration(said["every"]))}
    except ValueError as fault:
        raise BadInputError(f"{path}: {fault}") from None
    return {**when, "template": said["template"], **({"lane": said["lane"]} if "lane" in said else {})}


def _text(path: str, value: Any, env: Env) -> str:
    try:
        return resolve(str(value), env)
    except ReferenceFault as problem:
        raise BadInputError(f"{path}: {problem}", fix=problem.fix) from None
