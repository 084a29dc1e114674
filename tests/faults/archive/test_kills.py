"""A driver's process killed at every external effect of a cycle: nothing lost, nothing twice, nothing trimmed that is
not in the archive. The oracle is an outsider: the replies of XADD against rows read with plain pyarrow and SQL."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emq_ops.protocol.server import Server
from tests.faults.archive.world import Locals, Store, World, folder_store, s3_store
from tests.support.http_proxy import HttpProxy
from tests.support.kills import Moment
from tests.support.postgres import Postgres
from tests.support.s3 import S3Server
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote

Make = Callable[[str, str], "Bench"]


class Bench:
    """One pair of backends; a world for each kill."""

    def __init__(self, valkey: Valkey, server: Server, locals_: Locals, store: Store) -> None:
        self._valkey, self._server, self._locals, self._store = valkey, server, locals_, store
        self._worlds = 0
        self.policy: dict[str, Any] = {}

    def world(self) -> World:
        self._worlds += 1
        world = World(self._server, self._valkey.url, f"mail{self._worlds}", self._locals, self._store)
        world.policy |= self.policy
        world.fill()
        return world

    def moments(self, zygote: Zygote, *, whole: bool = False) -> list[Moment]:
        """Those of one cycle at which a process can be killed."""
        self.world().run(zygote, "a")  # from here on the server knows the scripts, and the database is made
        survey = self.world()
        found = survey.moments(zygote, "a", whole=whole)
        survey.converged("a")
        return found

    def try_all(self, chosen: list[Moment], zygote: Zygote) -> None:
        for number, moment in enumerate(chosen):
            world = self.world()
            world.kill(zygote, "a", moment)
            # Now the same host goes on, now another with a database of its own; and now and then the first once more.
            host = "ab"[number % 2]
            try:
                world.settle(host, watching="a" if number % 8 == 1 else None)
            except AssertionError as fault:
                raise AssertionError(f"killed {moment}, went on as host {host}: {fault}") from fault


@pytest.fixture
def make(valkey: Valkey, server: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Make]:
    proxies: list[HttpProxy] = []

    def bench(local: str, remote: str) -> Bench:
        postgres: Postgres | None = request.getfixturevalue("postgres") if local == "postgresql" else None
        if remote == "directory":
            store = folder_store(tmp_path / "bucket")
        else:
            s3: S3Server = request.getfixturevalue("s3")
            proxies.append(HttpProxy(s3.url))
            proxies[-1].up()
            store = s3_store(s3, proxies[-1])
        return Bench(valkey, server, Locals(tmp_path, postgres), store)

    yield bench
    for proxy in proxies:
        proxy.close()


@pytest.mark.long
def test_every_moment(make: Make, zygote: Zygote) -> None:
    bench = make("sqlite", "directory")
    every = bench.moments(zygote)
    assert {what for what, _, _ in every} == {"write", "commit", "file"}
    bench.try_all(every, zygote)


SEED = 20


@pytest.mark.long
def test_some_moments_of_each_kind_on_the_other_backends(make: Make, zygote: Zygote) -> None:
    bench, chance = make("postgresql", "s3"), random.Random(SEED)
    every = bench.moments(zygote)
    kinds = {what for what, _, _ in every}
    assert kinds == {"write", "commit", "http"}
    for kind in sorted(kinds):
        bench.try_all(chance.sample([moment for moment in every if moment[0] == kind], 3), zygote)


@pytest.mark.soak(minutes=3)
@pytest.mark.parametrize("remote", ["directory", "s3"])
@pytest.mark.parametrize("local", ["sqlite", "postgresql"])
def test_the_other_moments(local: str, remote: str, make: Make, zygote: Zygote) -> None:
    bench = make(local, remote)
    bench.policy = {"segment_bytes": 1000}  # several segments in one cycle
    every = bench.moments(zygote, whole=True)
    print(f"\n{local} and {remote}: killed at {len(every)} moments")
    bench.try_all(every, zygote)
