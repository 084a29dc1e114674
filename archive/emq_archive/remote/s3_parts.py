"""Large objects in parts: created only if nobody made one of that name before the last part."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emq_archive.errors import StoreUnreachableError
from emq_archive.remote.s3_client import S3Client
from emq_archive.remote.s3_faults import Missing, Taken
from emq_ops.protocol import deadline


def create_in_parts(s3: S3Client, key: str, body: bytes | Path, size: int) -> None:
    """Writes a new object of `size` bytes. Raises Taken where one is there, and what `S3Client.ask` raises."""
    where = {"Bucket": s3.options.bucket, "Key": s3.key_in_bucket(key)}
    begun = s3.ask(f"writing {key}", lambda client: client.create_multipart_upload(**where, **s3.storage_class()))
    upload = {**where, "UploadId": begun["UploadId"]}
    try:
        parts = []
        for number, start in enumerate(range(0, size, s3.options.part_bytes), 1):
            part = _part(body, start, s3.options.part_bytes)
            more = {**upload, "PartNumber": number, "Body": part}
            sent = s3.ask(f"writing part {number} of {key}", call("upload_part", more))
            parts.append({"PartNumber": number, "ETag": sent["ETag"]})
        s3.ask(
            f"completing {key}",
            lambda client: client.complete_multipart_upload(
                **upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
            ),
        )
    except Missing:
        # A lost reply of "complete" answers NoSuchUpload when it is sent again: the object is there, or is not.
        if s3.size(key) is None:
            raise StoreUnreachableError(
                f"the upload of {key} was lost", where=s3.url, fix="the next run writes it again"
            ) from None
        raise Taken from None
    except BaseException:
        _abort(s3, upload)
        raise


def _abort(s3: S3Client, upload: dict[str, str]) -> None:
    # The fault that led here is the one to tell; the store's lifecycle rule cleans up what stays.
    with contextlib.suppress(Exception), deadline.deadline(5.0):
        s3.client().abort_multipart_upload(**upload)


def call(verb: str, arguments: dict[str, Any]) -> Callable[[Any], Any]:
    """A call of the client, its arguments bound now."""
    return lambda s3: getattr(s3, verb)(**arguments)


def _part(body: bytes | Path, start: int, length: int) -> bytes:
    if isinstance(body, bytes):
        return body[start : start + length]
    with open(body, "rb") as source:
        source.seek(start)
        return source.read(length)
