"""Many workers over many lanes: no limit is ever passed, and the rotation is fair, by the server's own account."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import control, enqueue
from emq_ops.worker import Consumer, ConsumerSettings
from tests.support.consuming import records
from tests.support.invariants import violations
from tests.support.monitor import Monitor
from tests.support.run_worker import start_worker
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote

SAMPLE = b"""
-- Sampled in one atomic step: per lane the ceiling, the books, and the jobs that really are in flight.
local flights, wrong = {}, {}
for _, id in ipairs(redis.call('ZRANGE', ARGV[1] .. 'active', 0, -1)) do
  local group = redis.call('HGET', ARGV[1] .. 'job:' .. id, 'group')
  if group then flights[group] = (flights[group] or 0) + 1 end
end
local limits = redis.call('HGETALL', ARGV[1] .. 'glimit')
for i = 1, #limits, 2 do
  local group, limit = limits[i], tonumber(limits[i + 1])
  local booked = tonumber(redis.call('HGET', ARGV[1] .. 'gactive', group) or 0)
  if (flights[group] or 0) > limit or booked ~= (flights[group] or 0) then wrong[#wrong + 1] = group end
end
return wrong
"""


def check_rotation(lines: list[list[str]], base: str, limits: dict[str, int]) -> Counter[str]:
    """Replays what the server did to the ring: each claim took the ring's head, no lane was above its limit, and
    between two claims from a lane every other lane that stood on the ring all the while had its turn. Answers claims a
    lane."""
    ring: list[str] = []
    flights: Counter[str] = Counter()
    claims: Counter[str] = Counter()
    last: dict[str, int] = {}
    since: dict[str, int] = {}  # since which claim a lane is on the ring without a break
    served: dict[str, int] = {}
    clock = turns = 0
    for words in lines:
        match words:
            case ["RPUSH", key, *groups] if key == base + "ring":
                ring += groups
                since.update(dict.fromkeys(groups, clock))
            case ["LREM", key, _, group] if key == base + "ring":
                ring = [other for other in ring if other != group]
                since.pop(group, None)
            case ["LMOVE", key, *_] if key == base + "ring":
                ring.append(ring.pop(0))
            case ["HINCRBY", key, group, "1"] if key == base + "gactive":
                clock += 1
                assert ring[-1] == group, "a claim takes the head, which has just been turned to the end"
                for other in ring[:-1]:
                    if group in last and since[other] < last[group]:
                        turns += 1
                        assert served.get(other, 0) >= last[group], f"{other} was passed over"
                last[group] = served[group] = clock
                claims[group] += 1
                flights[group] += 1
                assert flights[group] <= limits.get(group, 1 << 60)
            case ["HINCRBY", key, group, "-1"] if key == base + "gactive":
                flights[group] -= 1
    assert turns > len(claims), "no turn was ever compared"
    return claims


@pytest.mark.parametrize("limited", [False, True])
def test_eight_workers_over_many_lanes(valkey: Valkey, server: Server, zygote: Zygote, limited: bool) -> None:
    q = Queue(server, "orders")
    lanes = [ids.mint("GRP") for _ in range(12)]
    jobs = 60
    limits = {group: 1 + n % 3 for n, group in enumerate(lanes)} if limited else {}
    for group, limit in limits.items():
        control.limit_lane(q, group, limit)
    wrong: list[object] = []
    done = threading.Event()

    def sample() -> None:
        with connect(valkey.url) as own:
            while not done.is_set():
                wrong.extend(own.read("EVAL_RO", SAMPLE, 0, q.keys.base))

    with Monitor(valkey) as monitor:
        news = [enqueue.NewJob(ids.mint(), b"ok", group) for _ in range(jobs) for group in lanes]
        enqueue.enqueue_many(q, news)
        sampler = threading.Thread(target=sample)
        sampler.start()
        options = {"concurrency": 4, "claim": ["lanes"], "cancel": False}
        workers = [
            start_worker(zygote, valkey.url, q.name, "tests.support.handlers:obedient", **options) for _ in range(8)
        ]
        codes = [worker.wait() for worker in workers]
        # A worker may end while another holds the last place of a lane; whatever is left is ended here.
        Consumer(q, lambda _: None, ConsumerSettings(claim=("lanes",), cancel=False)).run(until_idle=True)
        done.set()
        sampler.join(20)
    assert codes == [0] * 8
    assert wrong == []
    assert violations(server, q.name) == []
    assert len({fields[b"job"] for fields in records(q)}) == len(news) == len(records(q))
    assert check_rotation(monitor.lines, q.keys.base, limits) == Counter(dict.fromkeys(lanes, jobs))
