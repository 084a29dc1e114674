"""The processes of two hosts."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.faults.archive.zygote import Zygote
from tests.support.s3 import CREDENTIALS


@pytest.fixture(scope="package")
def zygotes() -> Iterator[dict[str, Zygote]]:
    before = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    pair = {"a": Zygote(), "b": Zygote()}
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    yield pair
    for zygote in pair.values():
        zygote.close()
