"""S3 and what is compatible with it: create-only writes, bounded retries, and one clear error for what they can't mend.

No checksum trailers and no chunked encoding are sent unless asked for (``checksums``): many stores refuse them, and the
driver proves what it wrote by reading it back.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import NoCredentialsError

from emq_archive.errors import StoreRefusedError
from emq_archive.remote.back import not_larger
from emq_archive.remote.s3_faults import Conflict, Missing, Taken, sorted_out, wait_or_raise
from emq_archive.remote.s3_history import S3History
from emq_archive.remote.s3_options import READ_SECONDS, MiB, S3Options
from emq_archive.remote.s3_parts import call, create_in_parts
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError

CONNECT_SECONDS = 5.0
_PROBE = "probe/create-only"
_TIGRIS = (".tigris.dev", ".storage.dev", ".tigrisdata.com")


_SECRETS = ("access_key_id", "secret_access_key", "session_token")


def open_url(parts: SplitResult, _base: Path | None, options: Mapping[str, str | int | bool | None]) -> S3Remote:
    """``s3://<bucket>/<prefix>?<options>``; `options` go before those of the query. Raises BadInputError."""
    asked = dict(parse_qsl(parts.query))
    for name in _SECRETS:
        if name in asked:
            fix = "set it in the environment, or under archive.remote as ${NAME}"
            raise BadInputError(f"a secret in a URL: {name}", where="--remote", fix=fix)
    return S3Remote(S3Options.of(parts.netloc, unquote(parts.path).strip("/"), {**asked, **options}))


class S3Remote:
    """`Remote` on a bucket. Thread-safe. Credentials are those of `options`, else what boto3's own chain finds."""

    def __init__(self, options: S3Options) -> None:
        self.options = options
        self.url = f"s3://{options.bucket}/{options.prefix}".rstrip("/")
        self._session: Any = None
        self._clients: dict[int, Any] = {}
        self._probed = False
        self.sign: bytes | None = None
        host = urlsplit(options.endpoint or "").hostname or ""
        self._tigris = host.endswith(_TIGRIS)

    @property
    def region(self) -> str:
        """The region that requests are signed for."""
        if self.options.region:
            return self.options.region
        found = self._opened().region_name
        return found or ("auto" if self.options.endpoint else "us-east-1")

    @property
    def path_style(self) -> bool:
        """Whether the bucket stands in the path of a URL."""
        given = self.options.path_style
        return (self.options.endpoint is not None and not self._tigris) if given is None else given

    def credentials(self) -> Any:
        """boto3's own: ``access_key``, ``secret_key``, ``token``. Raises StoreRefusedError where there are none."""
        found = self._opened().get_credentials()
        if found is None:
            raise sorted_out(NoCredentialsError(), "a query", self.url, self.options.bucket, self.region)
        return found.get_frozen_credentials()

    def location(self, key: str) -> str:
        """Where engines find an object."""
        return f"s3://{self.options.bucket}/{self.key_in_bucket(key)}"

    def _opened(self) -> Any:
        if self._session is None:
            inner = botocore.session.get_session()
            inner.register_component("data_loader", _loader())
            own = self.options
            if (own.access_key_id is None) != (own.secret_access_key is None):
                missing = "secret_access_key" if own.secret_access_key is None else "access_key_id"
                raise BadInputError(f"half of a key: no {missing}", where=self.url, fix="give both, or neither")
            self._session = boto3.session.Session(
                aws_access_key_id=own.access_key_id,
                aws_secret_access_key=own.secret_access_key,
                aws_session_token=own.session_token,
                profile_name=own.profile,
                botocore_session=inner,
            )
        return self._session

    def client(self) -> Any:
        """boto3's client whose time for a reply is within the caller's."""
        left = deadline.within(self.options.timeout_ms / 1000) or 0.0
        seconds = max([s for s in READ_SECONDS if s <= left], default=READ_SECONDS[0])
        if seconds not in self._clients:
            checksums = "when_supported" if self.options.checksums else "when_required"
            config = Config(
                connect_timeout=min(CONNECT_SECONDS, seconds),
                read_timeout=seconds,
                retries={"total_max_attempts": 1},  # ours, bounded by the deadline too
                request_checksum_calculation=checksums,
                response_checksum_validation=checksums,
                signature_version="s3v4",
                s3={"addressing_style": "path" if self.path_style else "auto"},
                user_agent_extra="emq-ops",
            )
            client = self._opened().client(
                "s3", endpoint_url=self.options.endpoint, region_name=self.region, config=config, verify=self.options.ca
            )
            if self._tigris:
                client.meta.events.register("before-sign.s3", _consistently)
            self._clients[seconds] = client
        return self._clients[seconds]

    def key_in_bucket(self, key: str) -> str:
        """The object's whole key, with the store's prefix."""
        return f"{self.options.prefix}/{key}" if self.options.prefix else key

    def ask(self, what: str, call: Callable[[Any], Any]) -> Any:
        """One call with its retries. Raises Taken, Missing, and our errors."""
        for number in itertools.count(1):
            deadline.check(what)
            try:
                # Made inside: credentials that can't be had are told like any other refusal.
                return call(self.client())
            except Exception as fault:  # noqa: BLE001  # sorted out, and raised again if not ours
                told = sorted_out(fault, what, self.url, self.options.bucket, self.region)
                wait_or_raise(told, number, what, self.url)

    def probe(self) -> None:
        """See `ports.Remote.probe`: one request once the probe's object stands, three before."""
        if self._probed:
            return
        if self.create(_PROBE, b"emq-ops\n") == "created":
            again = self.create(_PROBE, b"emq-ops\n")
            if again != "exists":
                raise StoreRefusedError(
                    "this store takes a create-only write (If-None-Match: *) of an object that is there",
                    code="NoConditionalWrites",
                    where=self.url,
                    fix="use a store with conditional writes (Amazon S3, Tigris, R2, a current MinIO), or file:",
                )
        self._probed = True

    def create(self, key: str, body: bytes | Path) -> Literal["created", "exists"]:
        """See `ports.Remote.create`."""
        size = body.stat().st_size if isinstance(body, Path) else len(body)
        try:
            if size > self.options.multipart_bytes:
                create_in_parts(self, key, body, size)
            else:
                self.ask(f"writing {key}", lambda s3: self._put(s3, key, body, IfNoneMatch="*"))
        except Taken:
            return "exists"
        return "created"

    def put(self, key: str, body: bytes) -> None:
        """See `ports.Remote.put`."""
        self.ask(f"writing {key}", lambda s3: self._put(s3, key, body))

    def _put(self, s3: Any, key: str, body: bytes | Path, **condition: str) -> None:
        with open(body, "rb") if isinstance(body, Path) else io.BytesIO(body) as source:
            s3.put_object(
                Bucket=self.options.bucket,
                Key=self.key_in_bucket(key),
                Body=source,
                **condition,
                **self.storage_class(),
            )

    def storage_class(self) -> dict[str, str]:
        """As requests that write say it."""
        return {"StorageClass": self.options.storage_class} if self.options.storage_class else {}

    def get(self, key: str, *, most: int | None = None) -> bytes | None:
        """See `ports.Remote.get`."""
        return self._get(key, most)

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        """See `ports.Remote.get_range`."""
        if length <= 0:
            return b""
        return self._get(key, None, Range=f"bytes={start}-{start + length - 1}")

    def _get(self, key: str, most: int | None, **more: str) -> bytes | None:
        def read(s3: Any) -> bytes:
            reply = s3.get_object(Bucket=self.options.bucket, Key=self.key_in_bucket(key), **more)
            with contextlib.closing(reply["Body"]) as body:
                out = io.BytesIO()
                if most is not None:
                    not_larger(self, key, reply["ContentLength"], most)
                for block in body.iter_chunks(MiB):
                    out.write(block)
                    deadline.check(f"reading {key}")  # a store that sends a byte now and then
            if out.tell() != reply["ContentLength"]:
                raise ConnectionError(f"{out.tell()} of {reply['ContentLength']} bytes came")
            return out.getvalue()

        try:
            found: bytes = self.ask(f"reading {key}", read)
        except Missing:
            return None
        return found

    def get_version(self, key: str, version: str) -> bytes | None:
        """The bytes of one version of an object, None where there is none."""
        return self._get(key, None, VersionId=version)

    def size(self, key: str) -> int | None:
        """See `ports.Remote.size`."""
        try:
            reply = self.ask(
                f"looking for {key}", lambda s3: s3.head_object(Bucket=self.options.bucket, Key=self.key_in_bucket(key))
            )
        except Missing:
            return None
        return int(reply["ContentLength"])

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """See `ports.Remote.list`."""
        return [*self._page(prefix, after, limit)]

    def _page(self, prefix: str, after: str, limit: int = 1000) -> dict[str, int]:
        """Keys and lengths: one request."""
        more = {"StartAfter": self.key_in_bucket(after)} if after else {}
        reply = self.ask(
            f"listing {prefix}",
            lambda s3: s3.list_objects_v2(
                Bucket=self.options.bucket, Prefix=self.key_in_bucket(prefix), MaxKeys=limit, **more
            ),
        )
        skip = len(self.key_in_bucket(""))
        return {found["Key"][skip:]: int(found["Size"]) for found in reply.get("Contents", [])}

    def sizes(self, keys: Sequence[str]) -> dict[str, int]:
        """See `ports.Remote.sizes`."""
        folders: dict[str, list[str]] = defaultdict(list)
        for key in sorted(keys):
            folders[key.rpartition("/")[0] + "/"].append(key)
        found: dict[str, int] = {}
        for folder, wanted in folders.items():
            after = wanted[0][:-1]  # what begins a key comes before it
            while page := self._page(folder, after):
                found.update((key, page[key]) for key in wanted if key in page)
                after = max(page)
                if after >= wanted[-1] or len(page) < 1000:
                    break
        return found

    def delete(self, keys: Iterable[str]) -> None:
        """See `ports.Remote.delete`. One by one: deleting many at once wants a checksum that some stores refuse."""
        for key in keys:
            where = {"Bucket": self.options.bucket, "Key": self.key_in_bucket(key)}
            with contextlib.suppress(Missing):
                self.ask(f"deleting {key}", call("delete_object", where))

    def history(self) -> S3History:
        """The older versions in the bucket."""
        return S3History(self)

    def close(self) -> None:
        """Gives back every connection."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()


@functools.cache
def _loader() -> Any:
    """The SDK's service descriptions: a quarter of a second to read, and the same for every session."""
    return botocore.session.get_session().get_component("data_loader")


def _consistently(request: Any, **_: Any) -> None:
    # Tigris answers from the nearest region unless told to be consistent.
    request.headers["X-Tigris-Consistent"] = "true"


__all__ = ["Conflict", "S3Options", "S3Remote"]
