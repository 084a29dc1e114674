"""Config files read: includes, overlays, validation. Nothing is connected to."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emq_ops.config.checks import check
from emq_ops.config.explain import combine, dotted, explain
from emq_ops.config.models import Config
from emq_ops.config.overlays import fill, overlay
from emq_ops.policy.environment import INCLUDE_ALLOW
from emq_ops.policy.reading import Reader
from emq_ops.policy.references import ReferenceFault, UnsetReference, forbidden, unset
from emq_ops.syntax.errors import Position, SourceError
from emq_ops.syntax.nodes import origin_of
from emq_ops.syntax.tree import MAX_BYTES, ListTree, MapTree, Scalar, Tree, parse, plain

MAX_FILES = 1000
MAX_ALL_BYTES = 16 << 20
"""Of all files of a config together."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was read: its path as named and the SHA-256 of its bytes."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was read. `config`: the checked models (references unresolved in text); `tree`: every value with its place;
    `sources`: the files, lowest first; `env`: where references are looked up; `folders`: where patterns of `include`
    look for files."""

    config: Config
    tree: MapTree
    sources: tuple[Source, ...]
    env: Mapping[str, str]
    folders: tuple[Path, ...] = ()

    @property
    def sha256(self) -> str:
        """One hash of all files, in order."""
        return hashlib.sha256("".join(s.sha256 for s in self.sources).encode()).hexdigest()

    @property
    def folder(self) -> Path:
        """Where relative paths of built-in defaults start: the first file's folder, or the working folder."""
        return self.sources[0].path.parent if self.sources else Path()


def load(
    files: Sequence[Path],
    env: Mapping[str, str],
    *,
    only: Sequence[str] | None = None,
    include: Sequence[Path] = (),
) -> Loaded:
    """Reads `files`, later ones over earlier ones, with what they include below them. No file: all defaults. `only`:
    these sections alone are looked at, so that a fault or an unset variable elsewhere stops nobody who needs no more.
    `include`: folders that files may be included from, beside the folder of each of `files`.

    Raises SourceError: the first fault in front, further ones in `others`.
    """
    files_read = _Files(include)
    tree: Tree = MapTree(Position(str(files[0]) if files else "no file", 0, 0), {}, 1)
    for path in files:
        tree = overlay(tree, files_read.read(path))
    if files_read.refers and (not_ours := _forbidden(tree, env)):
        raise combine(not_ours)
    filled = fill(tree)
    if only is not None:
        filled = MapTree(filled.mark, {k: v for k, v in filled.items.items() if k in only}, filled.size)
    reader = Reader(env)
    config = reader.section(Config, plain(filled))
    if config is None:
        raise explain(reader.faults, filled)
    faults = check(config, filled)
    if faults:
        raise combine(faults)
    return Loaded(config, filled, tuple(files_read.sources), env, tuple(dict.fromkeys(files_read.folders)))


def _forbidden(tree: Tree, env: Mapping[str, str]) -> list[SourceError]:
    """Every reference that the environment does not allow to be read, wherever it stands, before anything is done."""
    found: list[tuple[tuple[str | int, ...], Scalar]] = []
    if isinstance(tree, MapTree):
        _referring(tree, (), found)
    faults: list[SourceError] = []
    for path, value in found:
        try:
            problems = forbidden(str(value.value), env)
        except ReferenceFault:  # malformed: the field's own reader says so
            continue
        faults += [SourceError(str(one), value.mark, path=dotted(path), fix=one.fix) for one in problems]
    return faults


def unset_references(tree: MapTree, env: Mapping[str, str]) -> list[SourceError]:
    """Every reference in `tree` that has neither a value nor a default, each an error with its place."""
    found: list[tuple[tuple[str | int, ...], Scalar]] = []
    _referring(tree, (), found)
    return [
        SourceError(
            str(UnsetReference(name)),
            value.mark,
            path=dotted(path),
            fix=UnsetReference(name).fix,
        )
        for path, value in found
        if path[-1:] != ("note",)
        for name in unset(str(value.value), env)
    ]


def _referring(
    tree: MapTree | ListTree, path: tuple[str | int, ...], found: list[Any], without: set[int] | None = None
) -> None:
    """Finds the scalars in which a reference may stand, with their paths. `without`: mappings in which none stands, as
    in all that repeat them."""
    without = set() if without is None else without
    origin = id(origin_of(tree)) if isinstance(tree, MapTree) else 0
    if origin in without:
        return
    before = len(found)
    below = ((k, v) for k, (_, v) in tree.items.items()) if isinstance(tree, MapTree) else enumerate(tree.items)
    for key, value in below:
        if not isinstance(value, Scalar):
            _referring(value, (*path, key), found, without)
        elif type(value.value) is str and "${" in value.value:
            found.append(((*path, key), value))
    if origin and len(found) == before:
        without.add(origin)


class _Files:
    def __init__(self, allowed: Sequence[Path]) -> None:
        self.sources: list[Source] = []
        self.folders: list[Path] = []
        self._allowed = [folder.resolve() for folder in allowed]
        self._roots: list[Path] = []
        self._bytes = 0
        self.refers = False
        """Whether any file may hold a reference."""

    def read(self, path: Path) -> Tree:
        """The tree of one file over those that it includes, which lie below its folder, or where it may include."""
        try:
            self._roots = [path.parent.resolve(), path.resolve().parent, *self._allowed]
        except (OSError, RuntimeError, ValueError):
            self._roots = []  # what is wrong with it is said when it is read
        return self._read(path, ())

    def _confine(self, path: Path, at: Position) -> None:
        """Raises SourceError for a file, or a pattern's folder, that no file may include from here."""
        if not any(path.is_relative_to(root) for root in self._roots):
            fix = f"if it may: --allow-include {path.parent}, or add it to {INCLUDE_ALLOW}"
            raise SourceError(f"{path} is not below {self._roots[0]}", at, path="include", fix=fix)

    def _read(self, path: Path, chain: tuple[Path, ...], at: Position | None = None) -> Tree:
        try:
            real = path.resolve()
            odd = os.path.exists(path) and not os.path.isfile(path)
        except (RuntimeError, ValueError) as fault:  # a loop of links, a NUL
            raise SourceError(f"can't read {path}: {fault}", at, path="include" if at else "") from None
        if at is not None:
            self._confine(real, at)
        if odd:  # a pipe would be waited for
            raise SourceError(f"can't read {path}: no regular file", at, path="include" if at else "")
        if real in chain:
            names = " -> ".join(p.name for p in (*chain[chain.index(real) :], real))
            raise SourceError(f"an include loop: {names}", at, path="include", fix="take one of them out")
        if len(self.sources) >= MAX_FILES:
            raise SourceError(f"more than {MAX_FILES} files are included", at, path="include")
        try:
            with path.open("rb") as file:
                text = file.read(MAX_BYTES + 1)
            if len(text) > MAX_BYTES:
                size = path.stat().st_size
                raise SourceError(
                    f"the file has {size:,} bytes",
                    Position(str(path), 1, 1),
                    fix=f"at most {MAX_BYTES:,}; split it with include:",
                )
        except OSError as fault:
            what = f"can't read {path}: {fault.strerror}"
            raise SourceError(what, at, path="include" if at else "", fix="check the path and rights") from None
        self._bytes += len(text)
        if self._bytes > MAX_ALL_BYTES:
            raise SourceError(f"the files have more than {MAX_ALL_BYTES:,} bytes", at, path="include")
        self.refers = self.refers or b"${" in text or b"\\" in text  # a backslash may write one of its signs
        tree = parse(text, str(path))
        if isinstance(tree, Scalar) and tree.value is None:
            # Most likely one that was cut off, or is still to be written: taken as it is, it would take queues away.
            raise SourceError(
                "the file says nothing", tree.mark, fix="write what holds, or {} for nothing but defaults"
            )
        if at is not None and not isinstance(tree, MapTree):
            raise SourceError(f"{path} is no mapping", at, path="include", fix="an included file says sections")
        below: Tree | None = None
        for mark, target in self._includes(tree, path):
            included = self._read(target, (*chain, real), mark)
            below = included if below is None else overlay(below, included)
        self.sources.append(Source(path, hashlib.sha256(text).hexdigest()))
        return tree if below is None else overlay(below, tree)

    def _includes(self, tree: Tree, path: Path) -> list[tuple[Position, Path]]:
        if not isinstance(tree, MapTree) or "include" not in tree.items:
            return []
        _, value = tree.items["include"]
        found: list[tuple[Position, Path]] = []
        for item in (value,) if isinstance(value, Scalar) else value.items if not isinstance(value, MapTree) else ():
            if not isinstance(item, Scalar) or not isinstance(item.value, str):
                continue  # the validator says what is wrong with it
            if "${" in item.value:
                raise SourceError("", item.mark, path="include", expected="a path without references")
            if any(c in item.value for c in "*?["):
                base = Path("/") if item.value.startswith("/") else path.parent
                parts = Path(item.value).parts
                start = next(n for n, part in enumerate(parts) if any(c in part for c in "*?["))
                self._confine(base.joinpath(*parts[:start]).resolve(), item.mark)
                if ".." in parts[start:]:
                    raise SourceError("", item.mark, path="include", expected="no .. behind a pattern")
                try:
                    targets = sorted(itertools.islice(base.glob(item.value.lstrip("/")), MAX_FILES + 1))
                except (OSError, RuntimeError, ValueError) as fault:  # no pattern, or folders that go while we look
                    raise SourceError(f"can't look for {item.value}: {fault}", item.mark, path="include") from None
                if not targets:
                    what = f"the pattern '{item.value}' takes no file"
                    raise SourceError(what, item.mark, path="include", fix=f"it starts from {base}; or take it out")
                found += [(item.mark, target) for target in targets]
                self.folders += [target.parent for target in targets]
            else:
                found.append((item.mark, path.parent / item.value))
        return found
