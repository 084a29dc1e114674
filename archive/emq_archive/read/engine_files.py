"""pyarrow's own file systems over a remote, for engines that read segments themselves."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from emq_archive.ports import Remote
from emq_archive.remote.directory import DirectoryRemote
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError


def file_system(remote: Remote) -> tuple[Any, str]:
    """pyarrow's file system for a remote, and what stands before a key in it."""
    if isinstance(remote, DirectoryRemote):
        return fs.LocalFileSystem(), f"{remote.root.absolute().as_posix()}/"
    from emq_archive.remote.s3 import S3Remote  # and boto3, which a directory needs none of

    if not isinstance(remote, S3Remote):
        raise BadInputError("this remote can't be queried", fix="file: or s3:")
    keys = remote.credentials()
    more: dict[str, Any] = {}
    if remote.options.endpoint:
        parts = urlsplit(remote.options.endpoint)
        more = {
            "endpoint_override": parts.netloc,
            "scheme": parts.scheme,
            "force_virtual_addressing": not remote.path_style,
        }
    if remote.options.ca is not None:
        more["tls_ca_file_path"] = remote.options.ca
    seconds = deadline.within(60.0) or 0.0
    files = fs.S3FileSystem(
        access_key=keys.access_key,
        secret_key=keys.secret_key,
        session_token=keys.token,
        region=remote.region,
        connect_timeout=min(5.0, seconds),
        request_timeout=max(1.0, seconds),
        **more,
    )
    return files, f"{remote.options.bucket}/{remote.options.prefix}/".replace("//", "/")
