"""Least rights: the ACL rules of each role, for every queue or for some.

A worker's rules are in parts, so that what it may do to a row it may not do to a stream: commands on the keys that its
transitions write; scripts, whose every command the server checks by itself; ``XADD`` on streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from emq_ops.protocol.keyspace import VERSION_KEY, glob_literal, keys_of

Role = Literal["reader", "worker", "daemon", "operator"]
ROLES: tuple[Role, ...] = get_args(Role)

_CONNECTING = (
    "auth hello ping select reset quit client|setname client|setinfo client|id client|getname client|no-evict"
    " command|info cluster|slots cluster|shards cluster|nodes cluster|myid cluster|keyslot cluster|info"
    " cluster|countkeysinslot asking readonly readwrite time info role subscribe unsubscribe"
)
_READING = (
    "exists type get getrange strlen ttl pttl hget hmget hgetall hexists hkeys hlen hscan lindex llen lpos lrange scard"
    " sismember smismember smembers sscan zcard zcount zlexcount zrange zrangebylex zrangebyscore zrank zscore zmscore"
    " zscan xlen xrange xrevrange xpending xinfo|stream xinfo|groups xinfo|consumers scan dbsize eval_ro evalsha_ro"
)
_WRITING = (
    "zadd zrem hset hdel hincrby incrby decr lpush rpush lpop rpop blpop lmove lrem ltrim sadd srem set unlink del"
    " pexpire publish"
)
_CONSUMING = "xadd xgroup|create xreadgroup xack xautoclaim xclaim"
"""What a worker does to a stream: it records, and is one of a group."""
_SCRIPTS = "eval evalsha"
_PASSING = f"{_WRITING} {_SCRIPTS} {_CONSUMING} rename xtrim xdel persist"
_LOOKING = "slowlog|get client|list"
_NATIVE = "emq.extend emq.stalled.check"

_WORKED = ("pending", "active", "schedule", "dead", "ring", "paused", "glimit", "gactive", "gweight", "wake", "meta")
_FAMILIES = ("limiter", "job:*", "g:*", "de:*", "metrics:*", "repeat", "repeat:*")
"""What a worker's transitions write: all of a queue but its streams and the flow outbox, to which it adds."""
_OURS = ("aside", "adding", "added:*", "turn", "repeat", "repeat:*", "cron")
"""And of our own keys."""


def rules(role: Role, queues: Sequence[str] = (), *, native: bool = False) -> list[str]:
    """Returns the rules of `role` as ``ACL SETUSER`` takes them, for `queues` or else for every queue. `native`: with
    the EchoMQ module's commands, which a server without it refuses. Raises BadInputError for a name that no queue has.
    """
    wires, ours = _bases(queues)
    commands = f"{_CONNECTING} {_READING}"
    if role == "worker":
        commands += f" {_WRITING}"
        keys = [f"~{base}{name}" for base in wires for name in (*_WORKED, *_FAMILIES)]
        keys += [f"~{base}{name}" for base in ours for name in _OURS]
        keys += [f"%R~{base}*" for base in (*wires, *ours)]
    elif role == "reader":
        keys = [f"%R~{base}*" for base in (*wires, *ours)]
    else:
        commands += f" {_PASSING}" + (f" {_LOOKING}" if role == "operator" else "")
        keys = [f"~{base}*" for base in (*wires, *ours)]
    keys.append(f"%R~{VERSION_KEY}")
    channels = [f"&{base}events" if queues else f"&{base}*" for base in wires]
    found = ["resetpass", "resetkeys", "resetchannels", "-@all", *keys, *channels]
    if native and role != "reader":
        commands += f" {_NATIVE}"
    found += [f"+{command}" for command in dict.fromkeys(commands.split())]
    if role == "worker":
        found.append(f"(+eval +evalsha {' '.join(f'~{base}*' for base in (*wires, *ours))})")
        consuming = " ".join(f"+{command}" for command in _CONSUMING.split())
        found.append(f"({consuming} {' '.join(f'~{base}stream:*' for base in wires)})")
        found.append(f"(+rpush {' '.join(f'~{base}flow:outbox' for base in wires)})")
    return found


def line(role: Role, queues: Sequence[str] = (), *, user: str | None = None, native: bool = False) -> str:
    """Returns the rules as a line of an ``aclfile``: `user` (``emq-ops-<role>``) is on, and has no password yet."""
    return " ".join(["user", user or f"emq-ops-{role}", "on", *rules(role, queues, native=native)])


def _bases(queues: Sequence[str]) -> tuple[list[str], list[str]]:
    """The patterns of the queues' keys, the wire's and our own. A space, which ends a rule, becomes a ``?``."""
    if not queues:
        # Exactly as wide as they look: no name of a queue or a stream holds a brace.
        return ["emq:{*}:"], ["emq-ops:{*}:"]
    keys = [keys_of(queue) for queue in queues]
    return (
        [glob_literal(k.base).replace(" ", "?") for k in keys],
        [glob_literal(k.ops_base).replace(" ", "?") for k in keys],
    )
