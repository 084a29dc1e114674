"""S3 in particular: lost replies, bad weather, and what an operator is told."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_archive.errors import DiskFullError, StoreRefusedError, StoreUnreachableError
from emq_archive.local import open_local
from emq_archive.remote import open_remote
from emq_archive.remote.s3 import S3Options, S3Remote
from emq_ops.cli.stores import remote_of
from emq_ops.config.loader import load
from emq_ops.config.wiring import Wiring
from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.errors import BadInputError, DeadlineError, EmqError
from tests.archive.making import REF, START_MS, add, settled, shipper
from tests.support.http_proxy import HttpProxy, creates
from tests.support.https_stub import StrictStore
from tests.support.proxy import anything, named
from tests.support.s3 import CREDENTIALS, S3Server


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def proxied(s3: S3Server) -> Iterator[tuple[HttpProxy, S3Remote]]:
    with HttpProxy(s3.url) as proxy:
        remote = S3Remote(S3Options(s3.bucket(), "p", endpoint=proxy.url))
        yield proxy, remote
        remote.close()


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictStore]:
    with StrictStore(tmp_path) as store:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(store.cert))
        yield store


def test_c03_a_segment_goes_to_a_strict_store_over_https(stub: StrictStore, tmp_path: Path) -> None:
    """From bytes and from a file: stored byte for byte, with neither of the headers that it refuses."""
    remote = S3Remote(S3Options("bucket", endpoint=stub.url))
    body = os.urandom(200_000)
    (tmp_path / "segment").write_bytes(body)
    assert remote.create("from-bytes", body) == "created"
    assert remote.create("from-file", tmp_path / "segment") == "created"
    assert stub.objects["/bucket/from-bytes"] == stub.objects["/bucket/from-file"] == body
    assert remote.get("from-file") == body
    assert remote.create("from-bytes", body) == "exists"
    assert stub.refused == 0
    for _, _, headers in stub.requests:
        assert "aws-chunked" not in headers.get("content-encoding", "")
        assert not [name for name in headers if "checksum" in name or "trailer" in name]
    remote.close()


def test_c03_a_store_that_refuses_all_the_same_shows_its_code_and_nothing_is_proven(
    stub: StrictStore, tmp_path: Path
) -> None:
    with open_local(f"sqlite:///{tmp_path}/a.db") as local:
        entries = settled(5)
        add(local, entries)
        remote = S3Remote(S3Options("bucket", endpoint=stub.url))
        driver = shipper(local, remote)
        stub.refuse_all = "InvalidTag"
        with pytest.raises(StoreRefusedError, match="InvalidTag"):
            driver.ship(now_ms=START_MS, force=True)
        assert driver.prove((1 << 63, 0)).bound == local.outbox(REF).first
        assert local.outbox(REF).records == 5
        remote.close()


def test_tigris_is_asked_to_be_consistent(stub: StrictStore) -> None:
    remote = S3Remote(S3Options("bucket", endpoint=stub.url))
    remote._tigris = True  # the host's name decides, and a stub can't have it
    remote.create("log/q/s/00000000000000000001.json", b"{}")
    remote.get("log/q/s/00000000000000000001.json")
    remote.list("log/q/s/")
    assert all(headers.get("x-tigris-consistent") == "true" for _, _, headers in stub.requests)
    remote.close()


def test_only_tigris_is_taken_for_it(stub: StrictStore) -> None:
    for endpoint, wanted in (("https://t3.storage.dev", True), ("https://fly.storage.tigris.dev", True)):
        assert S3Remote(S3Options("b", endpoint=endpoint))._tigris is wanted
    remote = S3Remote(S3Options("bucket", endpoint=stub.url))
    remote.create("x", b"1")
    assert "x-tigris-consistent" not in stub.requests[0][2]
    remote.close()


@pytest.mark.parametrize("kind", ["cut_after", "cut_before"])
def test_a_lost_reply_is_asked_about_again(proxied: tuple[HttpProxy, S3Remote], kind: str) -> None:
    proxy, remote = proxied
    fault = proxy.arm(kind, match=creates)
    answer = remote.create("x", b"mine")
    assert fault.fired
    # Done, and the reply lost: the store says that it exists, and the caller reads whose it is.
    assert answer == ("exists" if kind == "cut_after" else "created")
    assert remote.get("x") == b"mine"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (503, b"<Error><Code>SlowDown</Code></Error>"),
        (500, b"<Error><Code>InternalError</Code></Error>"),
        (503, b"no xml at all"),
        (429, b""),
        (409, b"<Error><Code>ConditionalRequestConflict</Code></Error>"),
    ],
)
def test_passing_answers_are_tried_again(proxied: tuple[HttpProxy, S3Remote], status: int, body: bytes) -> None:
    proxy, remote = proxied
    fault = proxy.arm("answer", match=creates, status=status, body=body, times=2)
    assert remote.create("x", b"1") == "created"
    assert fault.fired == 2


def test_half_a_body_is_read_again(proxied: tuple[HttpProxy, S3Remote]) -> None:
    proxy, remote = proxied
    body = os.urandom(100_000)
    remote.create("x", body)
    proxy.arm("half_reply", match=named("GET"), times=2)
    assert remote.get("x") == body


def test_bad_weather_ends(proxied: tuple[HttpProxy, S3Remote], monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, remote = proxied
    monkeypatch.setattr("emq_archive.remote.s3_faults.FIRST_SECONDS", 0.001)
    fault = proxy.arm("answer", match=anything, status=503, times=10_000)
    with pytest.raises(StoreUnreachableError, match=r"failed 8 times.*503|failed 8 times.*Unavailable"):
        remote.create("x", b"1")
    assert fault.fired == 8


def test_c22_a_store_that_accepts_and_never_answers_costs_the_deadline_and_no_more(
    proxied: tuple[HttpProxy, S3Remote],
) -> None:
    proxy, remote = proxied
    proxy.arm("drop_reply", match=anything, times=10_000)
    begun = time.monotonic()
    with pytest.raises(DeadlineError, match="the time was up"), deadline(1.5):
        remote.create("x", b"1")
    assert time.monotonic() - begun < 10  # a hang, not a speed: without the deadline it would be minutes


@pytest.mark.parametrize(
    ("status", "code", "error", "says"),
    [
        (403, "AccessDenied", StoreRefusedError, "grant s3:GetObject"),
        (403, "RequestTimeTooSkewed", StoreRefusedError, "clock"),
        (403, "InvalidAccessKeyId", StoreRefusedError, "access key"),
        (403, "SignatureDoesNotMatch", StoreRefusedError, "access key"),
        (404, "NoSuchBucket", StoreRefusedError, "there is no bucket"),
        (400, "AuthorizationHeaderMalformed", StoreRefusedError, "region"),
        (301, "PermanentRedirect", StoreRefusedError, "region"),
        (501, "NotImplemented", StoreRefusedError, "conditional writes"),
        (507, "InsufficientStorage", DiskFullError, "full"),
        (400, "SomethingOdd", StoreRefusedError, "SomethingOdd"),
    ],
)
def test_what_an_operator_must_mend_is_told_at_once(
    proxied: tuple[HttpProxy, S3Remote], status: int, code: str, error: type[Exception], says: str
) -> None:
    proxy, remote = proxied
    body = f"<Error><Code>{code}</Code><Message>so it is</Message></Error>".encode()
    fault = proxy.arm("answer", match=creates, status=status, body=body, times=100)
    with pytest.raises(error, match=says) as caught:
        remote.create("x", b"1")
    assert fault.fired <= 2  # the SDK may follow a redirect once
    assert "\n" not in str(caught.value)


def test_a_bucket_that_is_not_there(s3: S3Server) -> None:
    remote = S3Remote(S3Options("no-such-bucket-anywhere", endpoint=s3.url))
    for call in (lambda: remote.create("x", b"1"), lambda: remote.get("x"), lambda: remote.list("x")):
        with pytest.raises(StoreRefusedError, match="there is no bucket 'no-such-bucket-anywhere'"):
            call()
    remote.close()


def test_no_credentials_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, s3: S3Server) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    remote = S3Remote(S3Options("b", endpoint=s3.url))
    with pytest.raises(StoreRefusedError, match="no credentials"):
        remote.create("x", b"1")


REMOTE = """
archive:
  remote:
    url: s3://bucket/p
    endpoint: %s
    region: eu-west-9
    access_key_id: ${SHOP_KEY}
    secret_access_key: ${SHOP_SECRET}
    session_token: ${SHOP_TOKEN}
    ca: %s
    timeout: 20s
"""


def test_what_the_yaml_says_of_the_store_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    with StrictStore(tmp_path) as store:
        file = tmp_path / "config.yaml"
        file.write_text(REMOTE % (store.url, store.cert))
        env = {"SHOP_KEY": "AKSHOP", "SHOP_SECRET": "s3cr3t", "SHOP_TOKEN": "t0ken"}
        settings = Wiring.of(load([file], env)).archive_remote
        assert settings is not None
        remote = remote_of(settings)
        assert remote.create("a", b"1") == "created"
        remote.close()
        assert store.objects == {"/bucket/p/a": b"1"}
        headers = store.requests[-1][2]
        assert "Credential=AKSHOP/" in headers["authorization"]
        assert "/eu-west-9/s3/" in headers["authorization"]
        assert headers["x-amz-security-token"] == "t0ken"
        assert not any(secret in repr(remote.__dict__) for secret in env.values())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"access_key_id": "a"}, "half of a key: no secret_access_key"),
        ({"profile": "nobody-has-this"}, "nobody-has-this"),
    ],
)
def test_keys_that_can_not_be(options: dict[str, str], said: str, s3: S3Server) -> None:
    with pytest.raises(EmqError, match=said):
        open_remote("s3://b", endpoint=s3.url, **options).create("x", b"1")


def test_a_secret_in_a_url_is_refused() -> None:
    with pytest.raises(BadInputError, match="a secret in a URL") as caught:
        open_remote("s3://b?secret_access_key=hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_store_without_create_only_writes_is_found_out(stub: StrictStore) -> None:
    stub.conditions = False
    remote = S3Remote(S3Options("bucket", endpoint=stub.url))
    with pytest.raises(StoreRefusedError, match="use a store with conditional writes"):
        remote.probe()
    remote.close()


def _large(s3: S3Server, endpoint: str) -> S3Remote:
    return S3Remote(S3Options(s3.bucket(), "p", endpoint=endpoint, multipart_bytes=1 << 20, part_bytes=5 << 20))


@pytest.mark.parametrize("how", ["bytes", "file"])
def test_large_objects_go_in_parts_and_stay_create_only(s3: S3Server, tmp_path: Path, how: str) -> None:
    with HttpProxy(s3.url) as proxy:
        remote = _large(s3, proxy.url)
        body = os.urandom(11 << 20)
        (tmp_path / "body").write_bytes(body)
        source: bytes | Path = body if how == "bytes" else tmp_path / "body"
        assert remote.create("x", source) == "created"
        assert proxy.count(lambda r: b"partNumber=" in r.words[1]) == 3
        assert remote.get("x") == body
        assert remote.create("x", b"y" * (2 << 20)) == "exists"
        assert remote.get("x") == body
        remote.close()


@pytest.mark.parametrize("kind", ["cut_after", "cut_before"])
def test_a_lost_reply_of_the_last_step_of_a_large_object(s3: S3Server, kind: str) -> None:
    with HttpProxy(s3.url) as proxy:
        remote = _large(s3, proxy.url)
        body = os.urandom(2 << 20)
        proxy.arm(kind, match=creates)
        assert remote.create("x", body) in ("created", "exists")
        assert remote.get("x") == body
        remote.close()


def test_deadlines_choose_the_timeout_of_a_client(proxied: tuple[HttpProxy, S3Remote]) -> None:
    _, remote = proxied

    def seconds(most: float | None) -> int:
        with deadline(most):
            return int(remote.client().meta.config.read_timeout)

    assert [seconds(s) for s in (0.5, 1.5, 7, 30, 1000, None)] == [1, 1, 5, 20, 60, 60]
