"""Where an S3 remote is and how it is asked: from a URL, its options and the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from emq_ops.protocol.errors import BadInputError

READ_SECONDS = (1, 2, 5, 10, 20, 30, 60)
"""A client is kept for each of these; a call takes the largest that its time allows."""
Renew = Callable[[], Mapping[str, Any]]
"""Gives the secrets among the options as they are now."""
MiB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class S3Options:
    """Where and how. `region` ``auto`` is taken as it is; `endpoint` None: the SDK's own choice. `checksums`: let the
    SDK send its checksum trailers. `path_style`: the bucket in the path, not in the host name (the default where an
    endpoint is given). Keys, or the name of a `profile`: None: boto3's own chain finds them. `ca`: a file of
    certificate authorities. `timeout_ms`: how long one request may take, within its deadline."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    storage_class: str | None = None
    multipart_bytes: int = 32 * MiB
    part_bytes: int = 16 * MiB
    checksums: bool = False
    path_style: bool | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None
    ca: str | None = None
    timeout_ms: int = READ_SECONDS[-1] * 1000

    @classmethod
    def of(cls, bucket: str, prefix: str, given: Mapping[str, str | int | bool | None]) -> S3Options:
        """From a URL's parts, its options, and the environment. Raises BadInputError."""
        known = set(cls.__dataclass_fields__) - {"bucket", "prefix"}
        for name in given:
            if name not in known:
                raise BadInputError(
                    f"no option '{name}' of an S3 remote", where="--remote", fix=f"one of {', '.join(sorted(known))}"
                )
        bucket = bucket or os.environ.get("BUCKET_NAME", "")
        if not bucket:
            raise BadInputError("no bucket is named", where="--remote", fix="s3://<bucket>/<prefix>, or BUCKET_NAME")
        values: dict[str, Any] = dict(given)
        for name in ("multipart_bytes", "part_bytes", "timeout_ms"):
            if name in values:
                values[name] = _whole(name, values[name])
        for name in ("checksums", "path_style"):
            if name in values:
                values[name] = str(values[name]).lower() in ("1", "true", "yes")
        values.setdefault("endpoint", os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"))
        values.setdefault("region", os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"))
        return cls(bucket=bucket, prefix=prefix, **values)


def _whole(name: str, given: object) -> int:
    text = str(given)
    if not (text.isascii() and text.isdigit() and int(text)):
        raise BadInputError(f"{name}={text[:40]} is no whole number", where="--remote", fix="give at least 1")
    return int(text)
