"""What a bucket keeps of objects that were deleted: versions, object lock, rules of its lifecycle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from emq_archive.errors import StoreRefusedError, StoreUnreachableError
from emq_archive.remote.s3_faults import Missing
from emq_archive.remote.s3_options import S3Options


class Bucket(Protocol):
    """A store on a bucket, as far as its history asks it."""

    options: S3Options

    def ask(self, what: str, call: Callable[[Any], Any]) -> Any: ...

    def key_in_bucket(self, key: str) -> str: ...

    def get_version(self, key: str, version: str) -> bytes | None: ...


class Version(NamedTuple):
    """One version of an object. `latest`: it is what the key shows now."""

    key: str
    id: str
    latest: bool

    def __str__(self) -> str:
        return f"{self.key}@{self.id}"


@dataclass(frozen=True, slots=True)
class Keeping:
    """What a bucket does with what is deleted. `versions`: older versions stay; `locked`: some can't be deleted before
    a date; `expires_days`: a lifecycle rule takes older versions away after so many days (None: none does); `unknown`:
    what could not be asked, a sentence each."""

    versions: bool = False
    locked: bool = False
    expires_days: int | None = None
    unknown: tuple[str, ...] = ()


class S3History:
    """The older versions in a bucket."""

    def __init__(self, remote: Bucket) -> None:
        self._remote = remote

    def keeping(self) -> Keeping:
        """Asks the bucket; what it may not or can't say is named in `unknown`."""
        unknown: list[str] = []

        def asked(verb: str) -> dict[str, Any]:
            try:
                found: dict[str, Any] = self._ask(f"asking for {verb}", verb)
            except Missing:
                return {}  # nothing of the kind is configured
            except (StoreRefusedError, StoreUnreachableError) as fault:
                unknown.append(f"{verb}: {fault}")
                return {}
            return found

        status = asked("get_bucket_versioning").get("Status")
        lock = asked("get_object_lock_configuration").get("ObjectLockConfiguration", {})
        rules = asked("get_bucket_lifecycle_configuration").get("Rules", [])
        days = [
            rule["NoncurrentVersionExpiration"].get("NoncurrentDays")
            for rule in rules
            if rule.get("Status") == "Enabled" and "NoncurrentVersionExpiration" in rule
        ]
        shortest = min((int(number) for number in days if number is not None), default=None)
        return Keeping(status is not None, lock.get("ObjectLockEnabled") == "Enabled", shortest, tuple(unknown))

    def versions(self, prefix: str) -> Iterator[Version]:
        """Every version of every object below `prefix`, without delete markers."""
        own = self._remote
        skip = len(own.key_in_bucket(""))
        marker: dict[str, str] = {}
        while True:
            reply = self._ask(
                f"listing versions of {prefix}", "list_object_versions", Prefix=own.key_in_bucket(prefix), **marker
            )
            for found in reply.get("Versions", []):
                yield Version(found["Key"][skip:], found["VersionId"], bool(found["IsLatest"]))
            if not reply.get("IsTruncated"):
                return
            marker = {"KeyMarker": reply["NextKeyMarker"], "VersionIdMarker": reply["NextVersionIdMarker"]}

    def read(self, version: Version) -> bytes | None:
        """The bytes of one version, None where it is gone."""
        return self._remote.get_version(version.key, version.id)

    def delete(self, version: Version) -> None:
        """Deletes one version for good. Raises StoreRefusedError where a lock, or the rights, do not allow it."""
        try:
            key = self._remote.key_in_bucket(version.key)
            self._ask(f"deleting {version}", "delete_object", Key=key, VersionId=version.id)
        except Missing:
            return

    def _ask(self, what: str, verb: str, **arguments: Any) -> Any:
        bucket = self._remote.options.bucket
        return self._remote.ask(what, lambda s3: getattr(s3, verb)(Bucket=bucket, **arguments))
