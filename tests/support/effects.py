"""The effects of a process that no proxy sees: commits of its databases, and what it does to files below a folder.

Each is counted, and the process kills itself before or after the k-th of a kind: what it did up to there stands, and
nothing that comes after it. Install it in a process that was forked for one run; it stays until the process ends.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

_CALLS = ("link", "unlink", "remove", "replace", "rename", "mkdir", "rmdir", "fsync")
_WRITES = os.O_WRONLY | os.O_RDWR
_AUDITED = ("os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir")


class Effects:
    """`kill`: ``[kind, "before" | "after", k]`` (see `kills.Moment`). Kinds: those of `watch`, ``file``: a file
    opened for writing, linked, moved, removed; a folder made; ``sync``: either of them brought to the disk (fsync).

    `seen` counts each kind. `audited` counts the files' effects as the interpreter itself tells of them (it tells of no
    fsync), so that a new way to touch a file does not go unseen: `check` compares.
    """

    def __init__(self, kill: Sequence[Any] | None, root: str | None) -> None:
        self.seen: Counter[str] = Counter()
        self.audited = 0
        self._kill = tuple(kill or ())
        self._root = root
        self._told = 0
        if root is not None:
            for name in _CALLS:
                setattr(os, name, self._watched(name, getattr(os, name)))
            builtins.open = io.open = self._opened(open)
            os.open = self._made(os.open)
            sys.addaudithook(self._audit)

    # --- databases

    def watch(self, engine: Any, kind: str) -> None:
        """Counts the commits of a database that change something."""
        from sqlalchemy import event

        state = {"changed": False, "committed": False}

        def statement(_connection: Any, _cursor: Any, sql: str, *_: Any) -> None:
            state["changed"] |= sql.lstrip()[:6].upper() in ("INSERT", "UPDATE", "DELETE")

        def before(_connection: Any) -> None:
            if state["changed"]:
                state.update(changed=False, committed=True)
                self._before(kind)

        def after(*_: Any) -> None:
            if state["committed"]:
                state["committed"] = False
                self._after(kind)

        event.listen(engine, "before_cursor_execute", statement)
        event.listen(engine, "commit", before)
        event.listen(engine.pool, "checkin", after)  # the commit is done when the connection comes back

    # --- files

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if not any(map(self._ours, args)):
                return real(*args, **more)
            kind = "sync" if name == "fsync" else "file"
            self._before(kind)
            self._told += kind == "file"
            done = real(*args, **more)
            self._after(kind)
            return done

        return call

    def _opened(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
            if isinstance(file, int) or not set(mode) & set("wxa+") or not self._ours(file):
                return real(file, mode, *args, **more)
            self._before("file")
            self._told += 1
            done = real(file, mode, *args, **more)
            self._after("file")
            return done

        return call

    def _made(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, flags: int, *args: Any, **more: Any) -> int:
            if not flags & _WRITES or not self._ours(path):
                return real(path, flags, *args, **more)
            self._before("file")
            self._told += 1
            done = real(path, flags, *args, **more)
            self._after("file")
            return done

        return call

    def _ours(self, what: Any) -> bool:
        if isinstance(what, bool):
            return False
        if isinstance(what, int):
            try:
                what = os.readlink(f"/proc/self/fd/{what}")
            except OSError:
                return False
        return isinstance(what, str | bytes | os.PathLike) and os.fsdecode(what).startswith(str(self._root))

    def _audit(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "open":
            path, mode, flags = args
            writes = isinstance(mode, str) and set(mode) & set("wxa+")
            # A descriptor that is wrapped was opened before: nothing happens to the file.
            if not isinstance(path, int) and (writes or (flags or 0) & _WRITES) and self._ours(path):
                self.audited += 1
        elif name in _AUDITED and any(self._ours(arg) for arg in args if isinstance(arg, str | bytes | os.PathLike)):
            self.audited += 1

    def check(self) -> None:
        """At the end of a run: every effect on a file that the interpreter told of was counted."""
        assert self._told == self.audited, f"{self.audited} effects on files, {self._told} of them counted"

    # --- counting

    def _before(self, kind: str) -> None:
        self.seen[kind] += 1
        self._die_if(kind, "before")

    def _after(self, kind: str) -> None:
        self._die_if(kind, "after")

    def _die_if(self, kind: str, when: str) -> None:
        if self._kill == (kind, when, self.seen[kind]):
            os.kill(os.getpid(), signal.SIGKILL)
