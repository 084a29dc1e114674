"""What holds between the values of a config file, beyond the type of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from urllib.parse import parse_qsl, urlsplit

from emq_ops.config.alert_conditions import condition
from emq_ops.config.explain import dotted, locate
from emq_ops.config.listening import TOKEN_FIX, address, is_loopback
from emq_ops.config.messenger import messenger_of, says_a_secret
from emq_ops.config.models import ArchiveSection, Config, HttpSection, MovedSection, WindowSection
from emq_ops.policy.references import has_reference
from emq_ops.policy.secrets import hide
from emq_ops.policy.triggers import Cron, parse_every
from emq_ops.policy.words import nearest
from emq_ops.protocol import globs
from emq_ops.protocol.connection.url import parse
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.keyspace import queue_name
from emq_ops.syntax.errors import SourceError, shown
from emq_ops.syntax.tree import MapTree

SERVER_SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)
STATE_SCHEMES = ("sqlite", "postgresql", "postgresql+psycopg", "postgres")
REMOTE_SCHEMES = ("file", "s3")

_SAME = {"valkey": "redis", "valkeys": "rediss"}

WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What an alert rule may be called."""

Path = tuple[str | int, ...]


def check(config: Config, tree: MapTree) -> list[SourceError]:
    """Every fault that no single field shows."""
    return [_fault(tree, *found) for found in _faults(config)] + list(_conditions(config, tree))


def _conditions(config: Config, tree: MapTree) -> Iterator[SourceError]:
    """What is wrong with the conditions of alert rules, with the place within each."""
    for i, rule in enumerate(config.alert_rules):
        if not has_reference(rule.when):
            try:
                condition(rule.when, locate(tree, ("alert_rules", i, "when"))[0])
            except SourceError as fault:
                yield fault


def _fault(tree: MapTree, path: Path, expected: str, got: str | None, fix: str | None) -> SourceError:
    mark, _ = locate(tree, path)
    return SourceError("", mark, path=dotted(path), expected=expected, got=got, fix=fix)


Found = tuple[Path, str, str | None, str | None]


def _faults(config: Config) -> Iterator[Found]:
    yield from server_faults(("server", "url"), config.server.url)
    yield from database_faults(("state", "url"), config.state.url)
    if config.archive is not None:
        yield from _archive(config.archive, config.state.url)
    for i, window in enumerate(config.maintenance):
        yield from _window(window, ("maintenance", i))
    for name in config.queues:
        try:
            queue_name(globs.literal(name) if not globs.is_glob(name) else name)
        except BadInputError as problem:
            yield ("queues", name), "the name of a queue, or a glob", problem.what, problem.fix
    for i, moved in enumerate(config.moved):
        yield from _moved(config, moved, ("moved", i))
    for i, alert in enumerate(config.alerts):
        yield from alert_faults(("alerts", i, "url"), alert.url)
    names: set[str] = set()
    for i, rule in enumerate(config.alert_rules):
        if rule.name in names or not WORD.fullmatch(rule.name):
            expected = "a word of letters, digits, - and _ that no other rule has"
            yield ("alert_rules", i, "name"), expected, shown(rule.name), None
        names.add(rule.name)
    if config.heartbeat is not None and not has_reference(config.heartbeat.url):
        yield from _scheme(("heartbeat", "url"), config.heartbeat.url, ("http", "https"), None)
    yield from _http(config.http)


def _moved(config: Config, moved: MovedSection, path: Path) -> Iterator[Found]:
    if moved.old in config.queues:
        yield (*path, "from"), "a name that is no entry of `queues` any more", shown(moved.old), None
    if moved.new not in config.queues:
        near = nearest(moved.new, config.queues)
        yield (*path, "to"), "an entry of `queues`", shown(moved.new), f"did you mean '{near}'?" if near else None
    if globs.wildcards(moved.old) != globs.wildcards(moved.new):
        yield (*path, "to"), f"the wildcards of '{moved.old}', in their order", shown(moved.new), None


def _http(http: HttpSection) -> Iterator[Found]:
    if not http.listen or has_reference(http.listen):
        return
    try:
        host, _ = address(http.listen)
    except BadInputError:
        yield ("http", "listen"), "address:port, such as 127.0.0.1:9119", shown(http.listen), None
        return
    if not is_loopback(host) and not http.token:
        expected = "a token, where others than this host can ask"
        yield ("http", "listen"), expected, shown(http.listen), f"write {TOKEN_FIX}"


def server_faults(path: Path, url: str) -> Iterator[Found]:
    """What is wrong with a server's URL, as far as it holds no reference; like the two below."""
    wrong = list(_scheme(path, url, SERVER_SCHEMES, "embedded"))
    yield from wrong
    if wrong or has_reference(url):
        return
    try:
        parse(url)
    except BadInputError as problem:
        yield (
            path,
            "a server's URL",
            shown(hide(url)),
            f"{problem.what}; {problem.fix}" if problem.fix else problem.what,
        )


def alert_faults(path: Path, url: str) -> Iterator[Found]:
    """A messenger's tokens stand anywhere in its URL; the library knows which parts it would hide."""
    if has_reference(url):
        return
    messenger = messenger_of(url)
    if messenger is None:
        yield path, "a URL that apprise takes", None, "its list of services has the form of each"
    elif says_a_secret(messenger):
        yield (
            path,
            "no secret written out",
            None,
            "write ${NAME} for it, or for the whole URL, and set NAME in the environment",
        )


def database_faults(path: Path, url: str) -> Iterator[Found]:
    wrong = list(_scheme(path, url, STATE_SCHEMES, None))
    yield from wrong
    if wrong or has_reference(url) or not url.startswith("sqlite"):
        return
    file = re.fullmatch(r"sqlite:///([^?]+)(\?.*)?", url)
    if file is None or file[1] == ":memory:":
        yield path, "sqlite:///FILE, a file that outlives the process", shown(url), "write sqlite:///.emq/state.db"


def _scheme(path: Path, url: str, schemes: tuple[str, ...], word: str | None) -> Iterator[Found]:
    if url == word or (word and url.startswith(f"{word}:")) or url.startswith("${"):
        return
    scheme, colon, _ = url.partition(":")
    if colon and scheme in schemes:
        return
    names = [f"{name}:" for name in schemes] + ([word] if word else [])
    close = nearest(_SAME.get(scheme, scheme) + ":", names)
    yield path, f"a URL with one of {', '.join(names)}", shown(hide(url)), f"did you mean '{close}'?" if close else None


def _archive(archive: ArchiveSection, state: str) -> Iterator[Found]:
    yield from database_faults(("archive", "local"), archive.local)
    if archive.usual.get("trim_after") == "local" and state.startswith("postgres"):
        yield ("archive", "trim_after"), "remote, since the state is PostgreSQL and hosts may be several", "local", None
    remote = archive.remote
    if remote is None:
        return
    base: Path = ("archive", "remote")
    if remote.url is None and remote.bucket is None:
        yield base, "a url or a bucket", "neither", None
    if remote.url is not None and remote.bucket is not None:
        yield (*base, "bucket"), "url or bucket", "both", "keep one of them"
    if remote.url is not None:
        yield from remote_faults((*base, "url"), remote.url)
    endpoint = remote.endpoint
    if endpoint is not None and not endpoint.startswith("${") and not re.match(r"https?://[^/]", endpoint):
        bare = endpoint and "://" not in endpoint
        fix = f"write https://{endpoint}" if bare else "write https:// and the store's host, or take it out"
        yield (*base, "endpoint"), "http:// or https:// and a host", shown(hide(endpoint)), fix


def remote_faults(path: Path, url: str) -> Iterator[Found]:
    wrong = list(_scheme(path, url, REMOTE_SCHEMES, None))
    yield from wrong
    if wrong or has_reference(url):
        return
    forms = "file:DIR or s3://bucket/prefix"
    if url == "file:":
        yield path, forms, shown(url), "name a folder"
    elif url.startswith("s3:") and not re.match(r"s3://[^/]", url):
        bucket = url.removeprefix("s3:").lstrip("/")
        yield path, forms, shown(hide(url)), f"write s3://{bucket}" if bucket else "name a bucket"
    for name, value in parse_qsl(urlsplit(url).query, keep_blank_values=True):
        if name == "endpoint" and not re.match(r"https?://[^/]", value):
            bare = value and "://" not in value
            fix = f"write endpoint=https://{value}" if bare else "take it out, or name the store's host"
            yield path, "endpoint= with http:// or https:// and a host", shown(hide(value)), fix


def instant(text: str) -> datetime:
    """An instant of a maintenance window; it must say its offset. Raises ValueError."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("no offset")
    return found


def opening(window: WindowSection) -> Cron:
    """When a window with a cron expression begins. A zone may end the expression, or stand in `zone`. Raises
    ValueError."""
    found = parse_every(window.cron or "", None if window.zone == "UTC" else window.zone)
    if not isinstance(found, Cron):
        raise ValueError("an interval opens no window; write when it begins, such as '0 3 * * sun'")
    return found


def _window(window: WindowSection, base: Path) -> Iterator[Found]:
    if window.cron is not None:
        if window.length is None or window.start is not None or window.until is not None:
            yield base, "cron: with for:", None, "or from: with to: or for:"
        try:
            opening(window)
        except ValueError as problem:
            yield (*base, "cron"), "a cron expression", shown(window.cron), str(problem)
        return
    if window.start is None or (window.until is None) == (window.length is None):
        yield base, "from: with to: or for:, or cron: with for:", None, None
        return
    for key, text in (("from", window.start), ("to", window.until)):
        if text is None:
            continue
        try:
            instant(text)
        except ValueError:
            yield (*base, key), "an instant with its offset, such as 2026-03-01T22:00:00Z", shown(text), None
            return
    if window.until is not None and instant(window.until) <= instant(window.start):
        yield (*base, "to"), "an instant after from:", shown(window.until), None
