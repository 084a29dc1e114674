"""A bucket and the client that asks it: credentials, timeouts, retries, one clear error for what they can't mend."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import NoCredentialsError

from emq_archive.errors import StoreRefusedError
from emq_archive.remote.s3_faults import RENEW, Missing, sorted_out, wait_or_raise
from emq_archive.remote.s3_options import READ_SECONDS, Renew, S3Options
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError, EmqError

CONNECT_SECONDS = 5.0
_TIGRIS = (".tigris.dev", ".storage.dev", ".tigrisdata.com")


class S3Client:
    """Requests to one bucket. Thread-safe. Credentials are those of `options` (`renew` gives them as they are now),
    else what boto3's own chain finds. Those that are refused are read again, wherever they come from, before the next
    try."""

    def __init__(self, options: S3Options, renew: Renew | None = None) -> None:
        self.options = options
        self._renew = renew
        self._renewing = threading.Lock()
        self.url = f"s3://{options.bucket}/{options.prefix}".rstrip("/")
        self._session: Any = None
        self._clients: dict[int, Any] = {}
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
        renewed, used = False, self._session
        for number in itertools.count(1):
            deadline.check(what)
            try:
                # Made inside: credentials that can't be had are told like any other refusal.
                client, used = self.client(), self._session
                return call(client)
            except Exception as fault:  # noqa: BLE001  # sorted out, and raised again if not ours
                told = sorted_out(fault, what, self.url, self.options.bucket, self.region)
                if isinstance(told, StoreRefusedError) and told.code in RENEW and not renewed:
                    renewed = True
                    if self.renew(used):
                        continue
                wait_or_raise(told, number, what, self.url)

    def renew(self, used: Any = None) -> bool:
        """Reads the credentials again (`used`: the session that was refused; where another took its place meanwhile,
        that one is to be tried). Returns whether they are others than before."""
        with self._renewing:
            if used is not None and used is not self._session:
                return True
            before = self._keys()
            if self._renew is not None:
                with contextlib.suppress(EmqError):  # a variable that is gone: the old ones are tried
                    self.options = replace(self.options, **self._renew())
            self._session, self._clients = None, {}
            changed: bool = self._keys() != before
            return changed

    def _keys(self) -> Any:
        """The credentials in hand, to be compared; None where there are none."""
        try:
            found = self._opened().get_credentials()
            return None if found is None else tuple(found.get_frozen_credentials())
        except Exception:  # noqa: BLE001  # whatever is wrong with them, the next call says it
            return None

    def storage_class(self) -> dict[str, str]:
        """As requests that write say it."""
        return {"StorageClass": self.options.storage_class} if self.options.storage_class else {}

    def size(self, key: str) -> int | None:
        """The length of an object in bytes, None where there is none."""
        try:
            reply = self.ask(
                f"looking for {key}", lambda s3: s3.head_object(Bucket=self.options.bucket, Key=self.key_in_bucket(key))
            )
        except Missing:
            return None
        return int(reply["ContentLength"])

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
