"""A real S3-compatible server (moto's) as a process of its own, with a fresh bucket for whoever asks."""

from __future__ import annotations

import functools
import itertools
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any, Self

import boto3
from botocore.config import Config

SERVE = """
from moto.server import main
from werkzeug.serving import WSGIRequestHandler
WSGIRequestHandler.protocol_version = "HTTP/1.1"
main()
"""
"""As ``moto_server``, with connections that stay open: clients keep them, and a new one costs as much as a request."""
KEY, SECRET = "testing", "testing-secret"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}


class S3Server:
    """Listens on a free port of 127.0.0.1 from entry to exit. `moto` checks and writes create-only in two steps: put a
    `HttpProxy` before it where several clients create at once."""

    def __enter__(self) -> Self:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SERVE, "-H", "127.0.0.1", "-p", str(self.port)],
            env={**os.environ, "MOTO_S3_CUSTOM_ENDPOINTS": ""},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._numbers = itertools.count(1)
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/moto-api/", timeout=5).close()
                return self
            except (urllib.error.URLError, OSError):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("moto did not start") from None
                time.sleep(0.05)  # it answers within two seconds or so; bounded by the deadline above

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @functools.cache  # noqa: B019  # one server a test process, and a client takes longer to make than most tests
    def client(self) -> Any:
        """A plain client, for looking at buckets from outside."""
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=Config(s3={"addressing_style": "path"}),
        )

    def bucket(self, *, locked: bool = False) -> str:
        """The name of a new, empty bucket. `locked`: versioned, with object lock."""
        name = f"bucket-{os.getpid()}-{next(self._numbers)}"
        self.client().create_bucket(Bucket=name, ObjectLockEnabledForBucket=locked)
        return name
