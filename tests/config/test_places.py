"""Where things are: paths are joined as paths and quoted into URLs in one place; each kind of URL is parsed one way,
in the YAML, by flags and by the environment."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from emq_archive.local.store import open_local
from emq_archive.remote import open_remote
from emq_ops.config.loader import load
from emq_ops.config.messenger import messenger_of, send
from emq_ops.config.places import anchored, tls_words, with_ca
from emq_ops.config.wiring import Wiring
from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol.connection.url import parse
from emq_ops.syntax.errors import SourceError

NAMES = ["a%2Fb", "what?", "no#1", "two words", "50%", "a&b=c", "ünï"]


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_any_name_holds_what_lies_beside_its_config(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    file = folder / "config.yaml"
    file.write_text("archive: {remote: {url: 'file:bucket'}}\nserver: {url: 'embedded:valkey'}\n")
    for wiring in (
        Wiring.of(load([file], {})),
        Wiring.of_urls({}, folder).with_urls(
            server=f"embedded:{folder}/valkey",
            state=anchored("sqlite:///.emq/state.db", folder),
            local=anchored("sqlite:///.emq/archive.db", folder),
            remote=anchored("file:bucket", folder),
        ),
    ):
        with open_ledger(wiring.state_url):
            assert (folder / ".emq" / "state.db").is_file()
        assert wiring.archive_local is not None
        with open_local(wiring.archive_local):
            assert (folder / ".emq" / "archive.db").is_file()
        settings = wiring.archive_remote
        assert settings is not None
        open_remote(settings.url).put("probe", b"x")
        assert (folder / "bucket" / "probe").read_bytes() == b"x"
        assert parse(wiring.server_url).folder == folder / "valkey"
        for path in (".emq/state.db", ".emq/archive.db", "bucket/probe"):
            (folder / path).unlink()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///a.db",
        "sqlite:////x/a%3Fb.db?mode=ro",
        "file:b",
        "file:///x/b%23c",
        "unix:///s",
        "embedded:d",
        "s3://b/p",
    ],
)
def test_anchoring_twice_is_anchoring_once(url: str, tmp_path: Path) -> None:
    once = anchored(url, tmp_path / "50%" / "what?")
    assert anchored(once, Path("/elsewhere")) == once


@pytest.mark.parametrize("text", ["embedded", "embedded:", "embedded:d", "embedded:/x/y"])
def test_the_yaml_takes_every_form_of_an_embedded_server(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"server: {{url: '{text}'}}\n")
    wiring = Wiring.of(load([tmp_path / "c.yaml"], {}))
    wanted = parse(text, base_dir=tmp_path).folder
    assert parse(wiring.server_url, base_dir=wiring.base).folder == wanted


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://b/p?endpoint=", "endpoint= with http:// or https:// and a host"),
        ("s3://b/p?endpoint=store.example", "write endpoint=https://store.example"),
        ("s3://b/p?endpoint=https:///x", "endpoint= with http:// or https:// and a host"),
    ],
)
def test_an_endpoint_that_cannot_work_is_refused_wherever_it_stands(url: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"archive: {{remote: {{url: '{url}'}}}}\n")
    with pytest.raises(SourceError) as caught:
        load([file], {})
    assert says in str(caught.value)
    given = Wiring.of_urls({}, tmp_path).with_urls(server=None, state=None, local=None, remote=url)
    with pytest.raises(SourceError) as caught:
        _ = given.archive_remote
    assert says in str(caught.value)
    file.write_text("archive: {remote: {url: '${STORE}'}}\n")
    wiring = Wiring.of(load([file], {"STORE": url}))
    with pytest.raises(SourceError, match="which is not what the reference gives"):
        _ = wiring.archive_remote


def test_tls_of_a_database_is_told_and_verified_by_an_authority() -> None:
    url = "postgresql://u@db.example/d"
    assert "not verified" in tls_words(url)
    whole = with_ca(url, "/etc/a b.pem")
    assert whole == f"{url}?sslmode=verify-full&sslrootcert=/etc/a%20b.pem"
    assert tls_words(whole) == "sslmode verify-full: the server is verified, with its name"
    said = f"{url}?sslmode=require"
    assert with_ca(said, "/ca") == said
    assert "require: the server is not verified" in tls_words(said)
    for other in ("sqlite:////x/state.db", "postgresql:///d?host=/run/postgresql", "redis://h"):
        assert tls_words(other) == ""
    assert with_ca("sqlite:////x", "/ca") == "sqlite:////x"


def test_a_messenger_that_shows_html_gets_the_signs_of_strangers_escaped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)
        got: list[bytes] = []

        def serve() -> None:
            one, _ = listening.accept()
            with one:
                one.settimeout(5)
                while b"</" not in b"".join(got) and b"&lt;/" not in b"".join(got):
                    got.append(one.recv(65536))
                one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        server = threading.Thread(target=serve)
        server.start()
        messenger = messenger_of(f"json://127.0.0.1:{listening.getsockname()[1]}/?format=html")
        assert send(messenger, "t", "<script>x</script>")
        server.join()
    assert b"&lt;script&gt;" in b"".join(got)
    assert b"<script>" not in b"".join(got)
