"""References: kept as written, resolved once, when used; secrets never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emq_archive.remote.s3 import S3Remote
from emq_ops.cli.stores import remote_of
from emq_ops.config.effective import Layers
from emq_ops.config.loader import Loaded, load, unset_references
from emq_ops.config.places import anchored, resolve_url
from emq_ops.config.wiring import Wiring
from emq_ops.deploy.deployment import require_set
from emq_ops.policy import scalars, secrets
from emq_ops.policy.references import ReferenceFault, resolve, unset
from emq_ops.protocol.connection.url import parse
from emq_ops.syntax.errors import SourceError

P = "p$4:x # y${HOME}"

C19 = """\
server:
  url: redis://127.0.0.1:1
  password: ${P}
archive:
  remote:
    bucket: ${UNSET}
note: cost is $5
"""


def read(tmp_path: Path, text: str, env: dict[str, str]) -> Loaded:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    return load([file], env)


def test_c19_the_exact_text_and_nothing_expanded_twice(tmp_path: Path) -> None:
    loaded = read(tmp_path, C19, {"P": P, "HOME": "/root"})
    wiring = Wiring.of(loaded)
    assert wiring.options("test").password == P
    assert loaded.config.note == "cost is $5"
    assert wiring.server["password"] == "${P}"
    assert P not in repr(wiring)


def test_c19_an_unset_variable_is_named_with_its_line(tmp_path: Path) -> None:
    loaded = read(tmp_path, C19, {"P": P})
    [fault] = unset_references(loaded.tree, loaded.env)
    line = f"{tmp_path}/c.yaml:6:13: archive.remote.bucket: the environment variable UNSET is not set"
    assert str(fault) == f"{line} (set it, or write ${{UNSET:-default}})"
    with pytest.raises(SourceError) as caught:
        _ = Wiring.of(loaded).archive_remote
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize(
    ("text", "env", "expected"),
    [
        ("a ${X} b", {"X": "1"}, "a 1 b"),
        ("${X:-d}", {}, "d"),
        ("${X:-d}", {"X": ""}, "d"),
        ("${X}", {"X": ""}, ""),
        ("${X:-}", {}, ""),
        ("${X:-a:-b}", {}, "a:-b"),
        ("$${X} $5 $X ${Y}", {"Y": "${X}"}, "${X} $5 $X ${X}"),
    ],
)
def test_resolving(text: str, env: dict[str, str], expected: str) -> None:
    assert resolve(text, env) == expected


@pytest.mark.parametrize("text", ["${", "${}", "${1x}", "${a-b}", "${X", "a ${X:b}"])
def test_a_malformed_reference_is_a_fault(text: str) -> None:
    with pytest.raises(ReferenceFault, match="a reference is"):
        resolve(text, {"X": "1"})


def test_unset_names() -> None:
    assert unset("${A} ${B:-x} ${C} $${D}", {"C": "1"}) == ["A"]


@given(st.text(max_size=40))
def test_any_value_is_taken_as_it_is(value: str) -> None:
    assert resolve("<${X}>", {"X": value}) == f"<{value}>"


@given(st.text(alphabet=st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30))
def test_any_password_survives_a_url(password: str) -> None:
    target = parse(resolve_url("redis://user:${P}@host:7000/2", {"P": password}))
    assert (target.options.username, target.options.password, target.options.db) == ("user", password, 2)


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("redis://h:6379/0", None),
        ("redis://u:${P}@h", None),
        ("redis://u@h", None),
        ("redis://:x@h", "x"),
        ("redis://u:x@y@h", "x@y"),
        ("redis://u:${P:-x}@h", "${P:-x}"),
        ("postgresql://h/db?password=x", "x"),
        ("postgresql://h/db?password=${P}", None),
        ("postgresql://h/db?sslmode=require", None),
        ("s3://bucket/a:b@c", None),
        ("slack://h/?token=x", "x"),
    ],
)
def test_a_password_in_a_url_is_found_and_hidden(url: str, password: str | None) -> None:
    assert secrets.url_password(url) == password
    if password == "x":
        assert secrets.hide(url) == url.replace("x@", "***@").replace("=x", "=***")


JUNK = [
    ("server:\n  url: ${V}\n", "u:s3cret@h:6379", "2:8: server.url: expected a URL with one of redis:"),
    ("server:\n  url: ${V}\n", "", "2:8: server.url: expected a URL with one of redis:"),
    ("server:\n  url: ${V}\n", "redis://u:s3cret@h:99999", "2:8: server.url: expected a server's URL"),
    ("state:\n  url: ${V}\n", "mysql://u:s3cret@h/d", "2:8: state.url: expected a URL with one of sqlite:"),
    ("archive:\n  local: ${V}\n", "sqlite://", "2:10: archive.local: expected sqlite:///FILE"),
    ("archive:\n  remote: {url: '${V}'}\n", "s3cret", "2:17: archive.remote.url: expected a URL with one of file:"),
    ("archive:\n  remote: {url: '${V}'}\n", "s3://", "2:17: archive.remote.url: expected file:DIR or"),
]


@pytest.mark.parametrize(("text", "value", "said"), JUNK)
def test_what_a_reference_gives_is_no_url(tmp_path: Path, text: str, value: str, said: str) -> None:
    loaded = read(tmp_path, text, {"V": value})
    [fault] = Wiring.of(loaded).faults()
    assert str(fault).startswith(f"{tmp_path}/c.yaml:{said}")
    assert str(fault).endswith("which is not what the reference gives, got '${V}'")
    with pytest.raises(SourceError, match="which is not what the reference gives"):
        require_set(loaded)


S3 = "archive:\n  remote:\n    url: s3://b\n"


@pytest.mark.parametrize(
    ("text", "env", "said"),
    [
        (f"{S3}    endpoint: ${{V}}\n", {"V": ""}, "c.yaml:4:15: archive.remote.endpoint is empty"),
        (f"{S3}    endpoint: ${{V}}\n", {"V": "t3.dev"}, "c.yaml:4:15: archive.remote.endpoint has no scheme"),
        (S3, {"AWS_ENDPOINT_URL_S3": ""}, "the environment variable AWS_ENDPOINT_URL_S3 is empty"),
        (S3, {"AWS_ENDPOINT_URL_S3": "t3.dev"}, "the environment variable AWS_ENDPOINT_URL_S3 has no scheme"),
    ],
)
def test_an_endpoint_of_the_environment_is_whole(tmp_path: Path, text: str, env: dict[str, str], said: str) -> None:
    [fault] = Wiring.of(read(tmp_path, text, env)).faults()
    assert said in str(fault)
    assert "write https:// and the store's host, or take it out" in str(fault)


def test_references_in_fields_that_are_no_text_are_resolved(tmp_path: Path) -> None:
    text = (
        "server: {url: 'rediss://h', verify: '${V}', timeout: '${T}', connect_timeout: '${C:-3s}'}\n"
        "archive: {remote: {url: 's3://b', addressing: '${A}', timeout: '${T}'}}\n"
    )
    wiring = Wiring.of(read(tmp_path, text, {"V": "false", "T": "1500ms", "A": "path"}))
    options, remote = wiring.options("test"), wiring.archive_remote
    assert (options.verify, options.socket_timeout, options.connect_timeout) == (False, 1.5, 3.0)
    assert remote is not None
    assert (remote.addressing, remote.timeout_ms) == ("path", 1500)
    assert wiring.server["timeout"] == "${T}"


def test_what_the_environment_gives_may_be_right(tmp_path: Path) -> None:
    env = {"S": "embedded", "D": "postgresql://u:x@h/d", "R": "s3://b/p", "E": "http://h", "H": "h1,h2"}
    text = "server:\n  url: ${S}\nstate:\n  url: ${D}\narchive:\n  remote: {url: '${R}', endpoint: '${E}'}\n"
    assert Wiring.of(read(tmp_path, text, env)).faults() == []
    assert Wiring.of(read(tmp_path, "server: {url: 'redis+cluster://${H}'}\n", env)).faults() == []


def test_relative_paths_start_from_the_file_that_says_them(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.yaml").write_text(
        "state: {url: 'sqlite:///s.db'}\narchive: {local: 'sqlite:////abs/a.db'}\n"
    )
    (tmp_path / "b.yaml").write_text("archive: {remote: {url: 'file:bucket'}}\n")
    wiring = Wiring.of(load([tmp_path / "conf" / "a.yaml", tmp_path / "b.yaml"], {}))
    assert wiring.state_url == f"sqlite:///{tmp_path}/conf/s.db"
    assert wiring.archive_local == "sqlite:////abs/a.db"
    assert wiring.archive_remote is not None
    assert wiring.archive_remote.url == f"file:{tmp_path}/bucket"
    assert Wiring.of(load([tmp_path / "b.yaml"], {})).state_url == f"sqlite:///{tmp_path}/.emq/state.db"


def test_anchored() -> None:
    base = Path("/base")
    assert anchored("sqlite:///x.db?mode=ro", base) == "sqlite:////base/x.db?mode=ro"
    assert anchored("file:dir", base) == "file:/base/dir"
    assert anchored("file:///dir", base) == "file:/dir"
    assert anchored("unix:///run/s", base) == "unix:///run/s"
    assert anchored("redis://h", base) == "redis://h"
    assert anchored("sqlite:///${DIR}/x.db", base) == "sqlite:///${DIR}/x.db"


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"AWS_ENDPOINT_URL_S3": ""}, "the environment variable AWS_ENDPOINT_URL_S3 is empty"),
        ({"AWS_ENDPOINT_URL_S3": "t3.storage.dev"}, "the environment variable AWS_ENDPOINT_URL_S3 has no scheme"),
    ],
)
def test_an_endpoint_of_the_environment_must_be_whole(env: dict[str, str], says: str, tmp_path: Path) -> None:
    loaded = read(tmp_path, "archive: {remote: {url: 's3://b'}}\n", env)
    with pytest.raises(SourceError, match=says):
        _ = Wiring.of(loaded).archive_remote


def test_the_endpoint_of_a_url_goes_before_the_environments(tmp_path: Path) -> None:
    far = "https://t3.storage.dev"
    loaded = read(tmp_path, "archive: {remote: {url: 's3://x'}}\n", {"AWS_ENDPOINT_URL_S3": far})
    for url, endpoint in (("s3://b/p?endpoint=http://near:9000", "http://near:9000"), ("s3://b/p", far)):
        wiring = Wiring.of(loaded).with_urls(server=None, state=None, local=None, remote=url)
        assert wiring.archive_remote is not None
        remote = remote_of(wiring.archive_remote)
        assert isinstance(remote, S3Remote)
        assert remote.options.endpoint == endpoint


def test_an_endpoint_that_resolves_to_nothing_names_its_line(tmp_path: Path) -> None:
    loaded = read(tmp_path, "archive:\n  remote:\n    url: s3://b\n    endpoint: ${E}\n", {"E": ""})
    with pytest.raises(SourceError, match=r"c.yaml:4:15: archive.remote.endpoint is empty"):
        _ = Wiring.of(loaded).archive_remote


def test_a_typed_field_keeps_its_reference_and_is_checked_with_its_value(tmp_path: Path) -> None:
    text = 'queues: {q: {dead: {keep: "${KEEP}", every: "${EVERY:-5m}", archive: "${ARCHIVE}"}}}\n'
    loaded = read(tmp_path, text, {"KEEP": "12", "ARCHIVE": "false"})
    fields = Layers(loaded).effective("q").dead
    assert fields is not None
    assert (fields["keep"], fields["every"], fields["archive"]) == ("${KEEP}", "${EVERY:-5m}", "${ARCHIVE}")


@given(st.integers(0, 36_525 * 86_400_000))
def test_durations_come_back(ms: int) -> None:
    assert scalars.parse_duration(scalars.format_duration(ms)) == ms


@given(st.integers(1, scalars.MAX_SIZE))
def test_sizes_come_back(size: int) -> None:
    assert scalars.parse_size(scalars.format_size(size)) == size


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("30", "write 30s"),
        ("1.5h", "write 90m"),
        ("30 s", "write 30s"),
        ("30sec", "write 30s"),
        ("10 minutes", "write 10m"),
        ("30S", "write 30s"),
        ("5w", "units are"),
        ("", "units are"),
        ("s", "units are"),
        ("99999999d", "at most"),
        ("٣s", "units are"),
    ],
)
def test_what_to_write_instead(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        scalars.parse_duration(text)
