"""What a fault of S3 means: try again, the object is there (or is not), or an operator must mend something."""

from __future__ import annotations

import random
import time
from typing import Any

from botocore import exceptions as boto
from urllib3.exceptions import HTTPError

from emq_archive.errors import DiskFullError, StoreRefusedError, StoreUnreachableError
from emq_ops.protocol.deadline import remaining
from emq_ops.protocol.errors import ROTATED, DeadlineError, EmqError

ATTEMPTS = 8
FIRST_SECONDS = 0.1
MOST_SECONDS = 10.0


class Taken(Exception):
    """412: an object of that name is there."""


class Missing(Exception):
    """404: there is no such object (or upload)."""


class Passing(Exception):
    """Likely to pass: a timeout, a reset, 500, 503. `said` is for people."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


class Conflict(Passing):
    """409 of a create-only write: another one is under way, so ask again."""


_AGAIN = {"SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "TooManyRequests", "Throttling"}
_AGAIN_STATUS = {408, 429, 500, 502, 503, 504}
_FULL = {"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "XMinioAdminBucketQuotaExceeded"}
_CLOCK = {"RequestTimeTooSkewed", "RequestExpired"}
_REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301"}
_RIGHTS = {"AccessDenied", "AllAccessDisabled", "403", "Forbidden"}
_KEYS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
RENEW = _KEYS | _RIGHTS | {"NoCredentials"}
"""Codes after which credentials are read again: they may have been rotated."""
_UNSUPPORTED = {"NotImplemented", "501"}
_PASSING = (
    boto.ConnectionError,
    boto.HTTPClientError,
    boto.ReadTimeoutError,
    boto.IncompleteReadError,
    boto.ResponseStreamingError,
    HTTPError,
    ConnectionError,
    TimeoutError,
)


def sorted_out(fault: BaseException, what: str, where: str, bucket: str, region: str) -> BaseException:
    """`fault` as Taken, Missing, Passing, or the error to show; what is none of S3's comes back as it is."""
    if isinstance(fault, EmqError | Taken | Missing | Passing):
        return fault
    if isinstance(fault, boto.ClientError):
        return _answered(fault, what, where, bucket, region)
    if isinstance(fault, boto.NoCredentialsError | boto.PartialCredentialsError | boto.CredentialRetrievalError):
        return StoreRefusedError(
            "there are no credentials for the store",
            code="NoCredentials",
            where=where,
            fix="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile or role that boto3 finds",
        )
    if isinstance(fault, boto.SSLError):
        return StoreRefusedError(
            f"the store's certificate is not trusted ({_line(fault)})",
            code="SSL",
            where=where,
            fix="check the endpoint's name, or set AWS_CA_BUNDLE",
        )
    if isinstance(fault, _PASSING):
        return Passing(_line(fault))
    if isinstance(fault, RecursionError):
        # The SDK follows a redirect to another region by asking for the region, and again.
        return _refused(
            f"bucket '{bucket}' is not in region '{region}'",
            "PermanentRedirect",
            where,
            "set the bucket's region (archive.remote.region, AWS_REGION)",
        )
    if isinstance(fault, boto.BotoCoreError | ValueError):
        return StoreRefusedError(
            f"{what} can't be asked of the store: {_line(fault)}",
            code=type(fault).__name__,
            where=where,
            fix="check the remote's URL, endpoint and region",
        )
    return fault


def _answered(fault: Any, what: str, where: str, bucket: str, region: str) -> BaseException:
    error = fault.response.get("Error", {})
    meta = fault.response.get("ResponseMetadata", {})
    code, status = str(error.get("Code", "")), int(meta.get("HTTPStatusCode", 0))
    said = f"{code or status}: {error.get('Message', '')}".rstrip(": ")
    if status == 412 or code == "PreconditionFailed":
        return Taken()
    if code == "NoSuchBucket":
        return _refused(
            f"there is no bucket '{bucket}'",
            code,
            where,
            "make it, or correct the name (archive.remote.url, BUCKET_NAME)",
        )
    if status == 404:
        return Missing()
    if status == 409:
        return Conflict(said)
    if code in _AGAIN or (status in _AGAIN_STATUS and code not in _FULL):
        return Passing(said)
    if code in _FULL or status == 507:
        return DiskFullError(f"the bucket is full ({said})", where=where, fix="raise its quota; nothing is trimmed")
    if code in _CLOCK:
        return _refused(f"this host's clock is off ({said})", code, where, "set the clock (NTP), then run again")
    if code in _REGION or status in (301, 307):
        there = meta.get("HTTPHeaders", {}).get("x-amz-bucket-region") or error.get("Region")
        fix = f"set region: {there}" if there else "set the bucket's region (archive.remote.region, AWS_REGION)"
        return _refused(f"bucket '{bucket}' is not in region '{region}' ({said})", code or "301", where, fix)
    if code in _KEYS:
        return _refused(
            f"the store does not know these credentials ({said})", code, where, f"renew the access key; {ROTATED}"
        )
    if code in _RIGHTS or status == 403:
        fix = f"grant s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket on '{bucket}'"
        return _refused(f"{what} is not allowed ({said})", code or "403", where, fix)
    if code in _UNSUPPORTED or status == 501:
        fix = "use a store with conditional writes (Amazon S3, Tigris, R2, a current MinIO), or file:"
        return _refused(f"the store can't do this: {what} ({said})", code or "501", where, fix)
    return _refused(f"the store refuses {what} ({said})", code or str(status), where, "look the code up at the store")


def _refused(what: str, code: str, where: str, fix: str) -> StoreRefusedError:
    return StoreRefusedError(what, code=code, where=where, fix=fix)


def _line(fault: BaseException) -> str:
    text = str(fault).splitlines()
    return text[0][:300] if text else type(fault).__name__


def wait_or_raise(fault: BaseException, number: int, what: str, where: str) -> None:
    """Waits before the attempt after the `number`-th at `what` (full jitter, ever longer). Raises the fault, or ours,
    where trying again can't mend it, there were enough attempts, or the caller's time is up."""
    if not isinstance(fault, Passing):
        raise fault
    wait = random.uniform(0, min(MOST_SECONDS, FIRST_SECONDS * 2.0**number))
    left, fix = remaining(), "see whether the store is well; the next run goes on"
    if left is not None and left <= wait:
        raise DeadlineError(f"the time was up while {what}; last: {fault.said}", where=where, fix=fix) from fault
    if number >= ATTEMPTS:
        said = f"{what} failed {number} times; last: {fault.said}"
        raise StoreUnreachableError(said, where=where, fix=fix) from fault
    time.sleep(wait)
