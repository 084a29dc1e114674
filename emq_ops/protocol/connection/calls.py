"""A command as it is sent: where it belongs, how long it may take, how it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emq_ops.protocol import scripts
from emq_ops.protocol.connection.link import Arg, Words
from emq_ops.protocol.connection.replies import reply_error
from emq_ops.protocol.connection.url import Address
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.keyspace import absent_keys
from emq_ops.protocol.scripts import Script
from emq_ops.protocol.slots import slot

_KEY_SECOND = {"XINFO", "XGROUP", "OBJECT", "MEMORY"}
_BLOCKING = {"BLPOP", "BRPOP", "BZPOPMIN", "BZPOPMAX", "BLMOVE", "BRPOPLPUSH"}
_KEYLESS = {"PING", "TIME", "INFO", "SCAN", "DBSIZE", "CONFIG", "CLIENT", "SCRIPT", "COMMAND", "PUBLISH", "ACL", "ROLE"}
_KEYLESS |= {"FLUSHALL", "FLUSHDB", "CLUSTER", "WAIT", "SLOWLOG", "LATENCY", "KEYS", "MODULE", "LASTSAVE", "ECHO"}
_KEYLESS |= {"DEBUG", "SHUTDOWN", "BGREWRITEAOF", "REPLICAOF", "FAILOVER", "UNWATCH"}
_TEXTS = (str, bytes)


@dataclass(slots=True)
class Call:
    """One command. `keys`: those that it names, or one of the slot where it belongs; empty: any node will do.
    `script`: of a transition; its `words` hold the SHA. `proof`: a Cluster's script's last word: how the slot's
    node stood when all of the slot was known to lie there; empty: unknown; None: none is asked for."""

    words: tuple[Arg, ...]
    keys: Sequence[str | bytes] = ()
    script: Script | None = None
    load: bool = False
    ask: Address | None = None
    proof: bytes | None = None

    @staticmethod
    def of(words: tuple[Arg, ...]) -> Call:
        """A plain command, with its first key."""
        key = _first_key(words)
        return Call(words, () if key is None else (key,))

    @staticmethod
    def transition(
        script: Script, keys: Sequence[str], args: Sequence[Arg], *, readonly: bool, in_cluster: bool
    ) -> Call:
        """A script's call. `in_cluster`: refused by the server while the slot moves."""
        verb = "EVALSHA_RO" if readonly else "EVALSHA"
        if not in_cluster:
            return Call((verb, script.sha, str(len(keys)), *keys, *args), keys, script)
        script, keys = scripts.in_cluster(script), (*keys, *absent_keys(keys[0]))
        words = (verb, script.sha, str(len(keys)), *keys, *args)
        return Call(words, keys, script, proof=None if script.one_key else b"")

    @property
    def slot(self) -> int | None:
        """The Cluster slot; None: any."""
        return slot(self.keys[0]) if self.keys else None

    def wire(self, *, source: bool) -> Words:
        """The words to send; with `source` the script itself in place of its SHA."""
        words = self.words if self.proof is None else (*self.words, self.proof)
        if not source or self.script is None:
            return words
        return ("EVAL_RO" if words[0] == "EVALSHA_RO" else "EVAL", self.script.source, *words[2:])

    def error(self, text: str, where: str) -> EmqError:
        return reply_error(text, where, script=self.script.name if self.script else None, keys=self.keys)

    @property
    def blocks(self) -> float:
        """Seconds that the server may take on purpose."""
        if self.script is not None:
            return 0.0
        name = str(self.words[0]).upper()
        if name in _BLOCKING:
            return float(self.words[-1])
        if name in ("XREAD", "XREADGROUP"):
            names = [str(word).upper() for word in self.words[1:6]]
            return int(self.words[names.index("BLOCK") + 2]) / 1000 if "BLOCK" in names else 0.0
        return 0.0

    @property
    def size(self) -> int:
        # Slices are long, and each call asks: by the type itself, which no word has a subclass of.
        sizes = [len(word) if type(word) in _TEXTS else 8 for word in self.words]  # type: ignore[arg-type]
        return sum(sizes)


def _first_key(words: tuple[Arg, ...]) -> str | bytes | None:
    name = str(words[0]).upper()
    place = 1
    if name in _KEYLESS:
        return None
    if name in _KEY_SECOND or name.startswith("EMQ."):
        place = 2
    elif name.startswith("EVAL"):
        if len(words) < 4 or int(words[2]) == 0:
            return None
        place = 3
    elif name in ("XREAD", "XREADGROUP"):
        place = [str(word).upper() for word in words].index("STREAMS") + 1
    key = words[place] if len(words) > place else None
    return key if isinstance(key, str | bytes) or key is None else str(key)
