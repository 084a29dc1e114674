"""What plan and apply look at before they say anything: a line each, nothing made, and a clear stop."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_archive.local.store import open_local
from emq_archive.log.commit import commit_key
from emq_archive.model import StreamRef
from emq_ops.cli import looking_archive
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.cli import Ran, emq
from tests.support.s3 import KEY, SECRET, S3Server
from tests.support.valkey import Valkey

CONFIG = """\
server: {{url: "{url}"}}
state: {{url: "{state}"}}
archive: {{remote: {{{remote}}}}}
queues:
  a: {{streams: {{completions: {{every: 1s}}}}}}
  b: {{settings: {{concurrency: 5}}}}
"""


class Site:
    """A folder with a config."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url

    def __call__(self, *words: str, state: str = "sqlite:///.emq/state.db", remote: str = "url: file:bucket") -> Ran:
        (self.folder / "config.yaml").write_text(CONFIG.format(url=self.url, state=state, remote=remote))
        return emq(*words)

    def made(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture
def site(tmp_path: Path, server: Server, valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return Site(tmp_path, valkey.url)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of something that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_plan_makes_nothing_and_says_what_it_saw(site: Site) -> None:
    shown = site("plan")
    assert shown.code == 2
    lines = [line.split(": ")[-1] for line in shown.err.splitlines()]
    assert "valkey" in lines[0]
    said = [
        "is not there yet; apply makes it",
        "is not there yet; the first pass makes it",
        "answers; holds no log yet",
    ]
    assert [line for line in lines if line in said] == said
    assert site.made() == ["config.yaml"]
    assert site("drift").code == 0
    assert site("apply", "--dry-run").code == 2
    assert site.made() == ["config.yaml"]


def test_a_plan_that_was_saved_before_there_was_a_state_can_be_applied(site: Site) -> None:
    assert site("plan", "--save", "p").code == 2
    assert site("apply", "p").code == 0
    assert site("plan", "--save", "p").code == 0
    assert site("apply", "p").code == 0
    shown = site("plan")
    assert "revision 1 is in force" in shown.err


def test_c36_what_is_not_there_or_does_not_answer_stops_plan_with_a_line(
    site: Site, s3: S3Server, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking_archive, "STORE_SECONDS", 1.0)
    missing = f"url: s3://no-such-bucket, endpoint: {s3.url}, region: us-east-1, addressing: path"
    hangs = f"url: s3://bucket, endpoint: {silent}, region: us-east-1, addressing: path"
    bare = "url: s3://bucket, endpoint: 'host:9000', region: us-east-1"
    usual = "sqlite:///.emq/state.db"
    for state, remote, code, said in [
        (usual, missing, 4, "archive.remote s3://no-such-bucket"),
        (usual, hangs, 3, "s3://bucket"),
        (usual, bare, 4, "archive.remote.endpoint: expected http:// or https:// and a host"),
        ("sqlite:///nowhere/state.db", "url: file:bucket", 4, "nowhere is not there"),
    ]:
        for verb in (["plan"], ["apply", "--dry-run"]):
            ended = site(*verb, state=state, remote=remote)
            assert ended.code == code, ended
            assert said in ended.err.splitlines()[-1]
            assert ended.out == ""
            assert site.made() == ["config.yaml"]
    assert site("plan", "--offline", remote=hangs).code == 2
    assert site("apply", "--yes", state="sqlite:///nowhere/state.db").code == 4
    assert site.made() == ["config.yaml"]


def test_apply_proves_the_store_and_leaves_nothing_in_it(site: Site, s3: S3Server) -> None:
    bucket = s3.bucket()
    before = len(s3.client().list_objects_v2(Bucket=bucket).get("Contents", []))
    ended = site(
        "apply", "--yes", remote=f"url: s3://{bucket}/p, endpoint: {s3.url}, region: us-east-1, addressing: path"
    )
    assert ended.code == 0, ended
    assert before == len(s3.client().list_objects_v2(Bucket=bucket).get("Contents", [])) == 0


def test_apply_takes_away_what_an_apply_left_that_was_killed_while_it_proved_the_store(
    site: Site, s3: S3Server
) -> None:
    bucket, now = s3.bucket(), time.time_ns() // 10**6
    old, young = (f"p/probe/create-only-{at}-{'ab' * 16}" for at in (now - 3_600_000, now))
    for key in (old, young):  # another apply may be at it now
        s3.client().put_object(Bucket=bucket, Key=key, Body=b"emq-ops\n")
    remote = f"url: s3://{bucket}/p, endpoint: {s3.url}, region: us-east-1, addressing: path"
    assert site("apply", "--yes", remote=remote).code == 0
    assert [one["Key"] for one in s3.client().list_objects_v2(Bucket=bucket)["Contents"]] == [young]


def test_a_store_that_can_not_be_written_stops_apply_before_its_first_write(site: Site, server: Server) -> None:
    (site.folder / "bucket").write_text("a file is in the way")
    ended = site("apply", "--yes", "--offline")
    assert ended.code == 4, ended
    assert server.read("EXISTS", keys_of("b").meta) == 0


def test_queues_of_another_state_are_one_refusal_with_the_way_out_on_stderr(site: Site, server: Server) -> None:
    for name in "ab":
        server.write("HSET", keys_of(name).lease, "state", "S1", "role", "daemon", "host", "ops@h", "pid", "7")
    for verb in (["plan"], ["apply", "--yes"]):
        ended = site(*verb)
        assert ended.code == 1
        last = ended.err.splitlines()[-1]
        assert "a, b: the queue belongs to state S1 (last held by ops@h:7)" in last
        assert "emq-ops state take-over S1" in last
        assert ended.out.count("belongs to state") == 1


@pytest.mark.parametrize("copied", [False, True])
def test_a_move_of_the_archive_is_looked_at(site: Site, server: Server, copied: bool) -> None:
    assert site("apply", "--yes").code == 0
    q = Queue(server, "a")
    server.write("XADD", q.keys.stream("completions"), "*", "job", "x")
    assert site("archive", "fold", "a").code == 0
    if copied:
        (site.folder / "other").mkdir()
        for file in (site.folder / "bucket").rglob("*"):
            new = site.folder / "other" / file.relative_to(site.folder / "bucket")
            new.mkdir(parents=True, exist_ok=True) if file.is_dir() else new.write_bytes(file.read_bytes())
    shown = site("plan", remote="url: file:other")
    ref = StreamRef("a", "completions")
    with open_local(f"sqlite:///{site.folder}/.emq/archive.db") as local:
        assert local.streams() == [ref]
    assert (site.folder / "other" / commit_key(ref, 1)).exists() is copied
    assert "starts empty" not in shown.out
    assert ("the new place holds the logs of all 1 streams" in shown.out) is copied
    assert ("the new place lacks the log of 1 of 1 streams (such as a/completions)" in shown.out) is not copied


def test_what_is_to_fold_is_what_the_archive_did_not_read(site: Site, server: Server) -> None:
    key = Queue(server, "a").keys.stream("completions")
    for _ in range(5):
        server.write("XADD", key, "*", "job", "x")  # no EVT id, so that no watermark is cached
    assert "5 records now, 5 to fold" in site("plan").out
    assert site("archive", "fold", "a").code == 0
    assert "5 records now, 0 to fold" in site("plan").out
    server.write("XADD", key, "*", "job", "x")
    assert "6 records now, 1 to fold" in site("plan").out


@pytest.mark.parametrize(
    ("flag", "url"),
    [
        ("--remote", "s3://b/p?endpoint="),
        ("--remote", "s3://b/p?endpoint=host"),
        ("--url", "http://h"),
        ("--state", "x"),
    ],
)
def test_validate_looks_at_the_urls_of_the_command_line_too(site: Site, flag: str, url: str) -> None:
    assert site("validate").code == 0
    ended = site("validate", flag, url, "-c", "config.yaml")
    assert (ended.code, ended.out) == (4, "")
    assert flag in ended.err
