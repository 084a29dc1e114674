"""Object stores: the same contract for a directory and for S3."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from emq_archive.errors import StoreRefusedError
from emq_archive.ports import Remote
from emq_archive.remote import open_remote
from emq_archive.remote.s3 import S3Remote
from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.errors import BadInputError, DeadlineError


def test_creating_twice_is_refused_and_keeps_the_first(remote: Remote) -> None:
    assert remote.create("a/b=c/x y%20.bin", b"first") == "created"
    assert remote.create("a/b=c/x y%20.bin", b"second") == "exists"
    assert remote.get("a/b=c/x y%20.bin") == b"first"
    assert remote.size("a/b=c/x y%20.bin") == 5


def test_what_is_not_there_is_none(remote: Remote) -> None:
    assert remote.get("none") is None
    assert remote.get("none/below") is None
    assert remote.get_range("none", 0, 5) is None
    assert remote.size("none") is None
    assert remote.list("none/") == []
    remote.delete(["none", "none/below"])


def test_ranges(remote: Remote) -> None:
    remote.create("r", bytes(range(100)))
    assert remote.get_range("r", 10, 5) == bytes(range(10, 15))
    assert remote.get_range("r", 95, 5) == bytes(range(95, 100))
    assert remote.get_range("r", 10, 0) == b""


def test_listing_is_in_byte_order_and_paged(remote: Remote) -> None:
    keys = ["l/a", "l/a-b", "l/a/1", "l/a/2", "l/a0", "l/b/x", "other"]
    for key in ["l/a-b", "l/a/1", "l/a/2", "l/a0", "l/b/x", "other"]:
        remote.create(key, b"x")
    wanted = [key for key in keys if key.startswith("l/") and key != "l/a"]
    assert remote.list("l/") == sorted(wanted)
    assert remote.list("l/a") == [key for key in sorted(wanted) if key.startswith("l/a")]
    assert remote.list("l/", limit=2) == sorted(wanted)[:2]
    after, seen = "", []
    while page := remote.list("l/", after=after, limit=2):
        seen += page
        after = page[-1]
    assert seen == sorted(wanted)


def test_put_writes_over_and_delete_takes_away(remote: Remote) -> None:
    remote.put("cache", b"1")
    remote.put("cache", b"22")
    assert remote.get("cache") == b"22"
    remote.delete(["cache"])
    assert remote.get("cache") is None


def test_from_a_file_and_large(remote: Remote, tmp_path: Path) -> None:
    body = os.urandom(300_000)
    (tmp_path / "body").write_bytes(body)
    assert remote.create("from-file", tmp_path / "body") == "created"
    assert remote.get("from-file") == body
    assert remote.create("from-file", tmp_path / "body") == "exists"


def test_the_probe_passes_and_is_asked_once(remote: Remote) -> None:
    remote.probe()
    before = remote.list("")
    remote.probe()
    assert remote.list("") == before


def test_many_creators_and_one_winner(remote: Remote) -> None:
    if isinstance(remote, S3Remote):
        return  # moto checks and writes in two steps; the fault harness serialises creates before it
    answers: list[str] = []
    threads = [threading.Thread(target=lambda i=i: answers.append(remote.create("one", b"%d" % i))) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["created"] + ["exists"] * 7


def test_a_deadline_that_has_passed_sends_nothing(remote: Remote) -> None:
    with pytest.raises(DeadlineError), deadline(0):
        remote.create("late", b"x")
    assert remote.get("late") is None


@pytest.mark.parametrize("key", ["../up", "a//b", "/abs", "a/../b", ""])
def test_a_directory_takes_no_key_that_leaves_it(tmp_path: Path, key: str) -> None:
    with pytest.raises(BadInputError):
        open_remote(f"file:{tmp_path}/bucket").create(key, b"x")


def test_a_directory_that_refuses_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreRefusedError, match="refuses"):
        open_remote(f"file:{tmp_path}/file/bucket").create("x", b"x")


LIMITED = """
import resource, sys
from emq_archive.errors import DiskFullError
from emq_archive.remote import open_remote
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    open_remote(sys.argv[1]).create("big", b"x" * 20_000)
except DiskFullError as fault:
    print(fault)
"""


def test_a_full_disk_of_a_directory_leaves_nothing(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)  # the limit is set in a process of its own
    url = f"file:{tmp_path}/bucket"
    said = subprocess.run([sys.executable, "-c", LIMITED, url], capture_output=True, text=True, check=True).stdout
    assert "no room on the disk" in said
    assert "nothing is trimmed" in said
    assert open_remote(url).get("big") is None
    assert not list((tmp_path / "bucket" / ".emq-temp").iterdir())


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("gs://x/y", "no object store"),
        ("s3://me:s3cret@bucket/y", "a store's URL takes no user and no password"),
        ("file://host/dir", "is a host"),
        ("file:", "no folder"),
        ("s3://", "no bucket"),
        ("s3://b/p?colour=red", "no option 'colour'"),
        ("s3://b/p?part_bytes=abc", "part_bytes=abc is no whole number"),
        ("s3://b/p?timeout_ms=0", "timeout_ms=0 is no whole number"),
    ],
)
def test_other_urls_are_bad_input(url: str, match: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUCKET_NAME", raising=False)
    with pytest.raises(BadInputError, match=match) as told:
        open_remote(url)
    assert "s3cret" not in str(told.value)


def test_the_environment_names_bucket_endpoint_and_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKET_NAME", "mine")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://t3.storage.dev")
    monkeypatch.setenv("AWS_REGION", "auto")
    remote = open_remote("s3:///prefix")
    assert isinstance(remote, S3Remote)
    assert (remote.url, remote.region, remote.options.endpoint) == (
        "s3://mine/prefix",
        "auto",
        "https://t3.storage.dev",
    )
    assert remote.location("k") == "s3://mine/prefix/k"
