"""S3 and what is compatible with it: create-only writes, bounded retries, and one clear error for what they can't mend.

No checksum trailers and no chunked encoding are sent unless asked for (``checksums``): many stores refuse them, and the
driver proves what it wrote by reading it back.
"""

from __future__ import annotations

import contextlib
import io
import re
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qsl, unquote

from emq_archive.errors import StoreRefusedError
from emq_archive.remote.back import not_larger
from emq_archive.remote.s3_client import S3Client
from emq_archive.remote.s3_faults import Conflict, Missing, Taken
from emq_archive.remote.s3_history import S3History
from emq_archive.remote.s3_options import MiB, Renew, S3Options
from emq_archive.remote.s3_parts import call, create_in_parts
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError

_PROBE = "probe/create-only"
_PROBE_NAME = re.compile(rf"{_PROBE}-([0-9]{{1,15}})-[0-9a-f]{{32}}")
_PROBE_MS = 10 * 60_000
"""An object of a probe that is older was left by a process that was killed."""
_SECRETS = ("access_key_id", "secret_access_key", "session_token")


def open_url(
    parts: SplitResult, _base: Path | None, options: Mapping[str, str | int | bool | None], renew: Renew | None = None
) -> S3Remote:
    """``s3://<bucket>/<prefix>?<options>``; `options` go before those of the query. Raises BadInputError."""
    asked = dict(parse_qsl(parts.query))
    for name in _SECRETS:
        if name in asked:
            fix = "set it in the environment, or under archive.remote as ${NAME}"
            raise BadInputError(f"a secret in a URL: {name}", where="--remote", fix=fix)
    return S3Remote(S3Options.of(parts.netloc, unquote(parts.path).strip("/"), {**asked, **options}), renew)


class S3Remote(S3Client):
    """`Remote` on a bucket. Thread-safe."""

    def __init__(self, options: S3Options, renew: Renew | None = None) -> None:
        super().__init__(options, renew)
        self._probed = False
        self.sign: bytes | None = None

    def location(self, key: str) -> str:
        """Where engines find an object."""
        return f"s3://{self.options.bucket}/{self.key_in_bucket(key)}"

    def probe(self, *, leave: bool = True) -> None:
        """See `ports.Remote.probe`: one request once the probe's object stands, three before."""
        if self._probed and leave:
            return
        key = _PROBE if leave else f"{_PROBE}-{time.time_ns() // 10**6}-{uuid.uuid4().hex}"
        if self.create(key, b"emq-ops\n") == "created":
            again = self.create(key, b"emq-ops\n")
            if not leave:
                with contextlib.suppress(StoreRefusedError):  # without the right to delete a few bytes stay
                    self.delete([key])
                    self.delete(self._left_probes())
            if again != "exists":
                raise StoreRefusedError(
                    "this store takes a create-only write (If-None-Match: *) of an object that is there",
                    code="NoConditionalWrites",
                    where=self.url,
                    fix="use a store with conditional writes (Amazon S3, Tigris, R2, a current MinIO), or file:",
                )
        self._probed = True

    def _left_probes(self) -> list[str]:
        """Objects of probes whose processes were killed before they took them away: one that runs is younger."""
        now = time.time_ns() // 10**6
        told = ((key, _PROBE_NAME.fullmatch(key)) for key in self.list(f"{_PROBE}-"))
        return [key for key, name in told if name is not None and now - int(name[1]) > _PROBE_MS]

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


__all__ = ["Conflict", "S3Options", "S3Remote"]
