"""URLs: every form, every refusal, and no secret in anything that is shown."""

from __future__ import annotations

import contextlib
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emq_ops.protocol.connection.options import ConnectionOptions
from emq_ops.protocol.connection.url import parse, redact
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.server import connect


def test_a_plain_url() -> None:
    target = parse("redis://bob:p%40ss%2Fw@host:7000/3?socket_timeout=2.5s&client_name=me")
    assert (target.kind, target.addresses, target.tls) == ("standalone", (("host", 7000),), False)
    o = target.options
    assert (o.username, o.password, o.db, o.socket_seconds, o.name) == ("bob", "p@ss/w", 3, 2.5, "me")
    assert parse("redis://host").addresses == (("host", 6379),)
    assert parse("redis://[::1]:7001/").addresses == (("::1", 7001),)
    assert parse("redis://:secret@host").options.username is None
    assert parse("redis://:secret@host").options.password == "secret"


def test_tls() -> None:
    target = parse("rediss://host?ca=/c.pem&cert=/x.pem&key=/x.key&verify=no")
    assert target.tls
    assert (target.options.ca, target.options.cert, target.options.key) == ("/c.pem", "/x.pem", "/x.key")
    assert target.options.verify is False
    assert parse("rediss://host").options.verify is None


def test_unix() -> None:
    target = parse("unix://bob:pw@/run/my%20socket?db=2")
    assert target.addresses == ("/run/my socket",)
    assert (target.options.username, target.options.password, target.options.db) == ("bob", "pw", 2)


def test_sentinels() -> None:
    target = parse("redis+sentinel://u:p@one,two:5000,[::1]/primary/4")
    assert target.kind == "sentinel"
    assert target.addresses == (("one", 26379), ("two", 5000), ("::1", 26379))
    assert (target.service, target.options.db, target.options.username) == ("primary", 4, "u")
    assert parse("rediss+sentinel://one/primary").tls


def test_cluster() -> None:
    target = parse("redis+cluster://one,two:7001")
    assert (target.kind, target.addresses) == ("cluster", (("one", 6379), ("two", 7001)))
    assert parse("redis+cluster://one/0").kind == "cluster"


def test_embedded(tmp_path: Path) -> None:
    assert parse("embedded").folder == Path.cwd() / ".emq"
    assert parse("embedded", base_dir=tmp_path).folder == tmp_path / ".emq"
    assert parse("embedded:data/here", base_dir=tmp_path).folder == tmp_path / "data/here"
    assert parse(f"embedded:{tmp_path}/x", base_dir="/elsewhere").folder == tmp_path / "x"


def test_options_win_over_the_url() -> None:
    target = parse("redis://bob:old@host/3", ConnectionOptions(password="new", db=0))
    assert (target.options.username, target.options.password, target.options.db) == ("bob", "new", 0)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "not a server URL"),
        ("localhost:6379", "not a server URL"),
        ("http://host", "redis://"),
        ("redis://", "no host"),
        ("redis://host:0", "not a host"),
        ("redis://host:99999", "not a host"),
        ("redis://ho st", "not a host"),
        ("redis://one,two", "more than one host"),
        ("redis://host/x", "not a database number"),
        ("redis://host/1/2", "not a database number"),
        ("redis://host?soket_timeout=3", "did you mean socket_timeout"),
        ("redis://host?socket_timeout=soon", "socket_timeout can't be 'soon'"),
        ("redis://host?socket_timeout=-1", "socket_timeout can't be"),
        ("redis://host?verify=perhaps", "verify can't be"),
        ("unix://run/socket", "has no host"),
        ("unix://", "has no host"),
        ("redis+sentinel://host", "name of the primary is missing"),
        ("redis+cluster://one/2", "database 0 only"),
        ("redis+cluster://one,,two", "no host"),
        ("redis+magic://host", "not a server URL"),
    ],
)
def test_what_is_no_url_is_said_clearly(url: str, says: str) -> None:
    with pytest.raises(BadInputError, match=says.replace("(", r"\(")) as refused:
        parse(url)
    assert "\n" not in str(refused.value)


SECRET = "s3cr3t!"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://bob:{SECRET}@host:1/0",
        f"redis://:{SECRET}@host:1/0",
        f"redis://bob:x@{SECRET}@host:1/0",
        f"redis://bob:x/{SECRET}@host:1/0",
        f"redis://bob:x?{SECRET}@host:1/0",
        f"redis://bob:x#{SECRET}@host:1/0",
        f"redis:/bob:{SECRET}@host",
        f"bob:{SECRET}@host",
        f"redis://127.0.0.1:1?password={SECRET}",
        f"redis://host?db=x&password={SECRET}",
        f"redis+sentinel://host/name?sentinel_password={SECRET}&x=1",
        f"redis+cluster://bob:{SECRET}@127.0.0.1:1",
        f"unix://bob:{SECRET}@/nowhere",
        f"redis://bob:{SECRET}@127.0.0.1:1",
    ],
)
def test_a_secret_is_never_shown(url: str) -> None:
    assert SECRET not in redact(url)
    # Some are refused, some lead nowhere: nothing that is said then holds the secret.
    with pytest.raises(EmqError) as failed:
        connect(url, ConnectionOptions(connect_timeout=0.3, patience=0.3))
    assert SECRET not in "".join(traceback.format_exception(failed.value))


def test_a_target_hides_its_secrets() -> None:
    target = parse(f"redis://bob:{SECRET}@host?sentinel_password={SECRET}")
    assert SECRET not in repr(target)
    assert target.options.password == target.options.sentinel_password == SECRET


@given(user=st.text(max_size=8), password=st.text(min_size=4, max_size=20))
def test_any_user_and_password_pass_when_quoted(user: str, password: str) -> None:
    url = f"redis://{quote(user, safe='')}:{quote(password, safe='')}@host:7000/1"
    target = parse(url)
    assert target.options.username == (user or None)
    assert target.options.password == password
    assert target.addresses == (("host", 7000),)
    assert target.where == f"redis://{quote(user, safe='')}:***@host:7000/1"


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for url in (text, "redis://" + text, "redis+sentinel://" + text):
        with contextlib.suppress(BadInputError):
            parse(url)
