"""The keys of one queue under examination: pages of them are judged by read-only scripts, suspects a second time.

A page is judged inside one script, so a job that moves while we look is never caught between two sets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from emq_ops.audit.doctor.finding import KEY, LANE, Finding
from emq_ops.audit.doctor.kinds import KINDS
from emq_ops.protocol import key_names
from emq_ops.protocol.ids import is_valid
from emq_ops.protocol.keyspace import Keys
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

PAGE = 200
"""Jobs a script: about 1,500 small reads, one or two milliseconds."""
LANE_PAGE = 1000
MAX_FLIGHTS = 50_000
"""Above this many leases the flights of lanes are not counted: it takes one script."""
MAX_LISTED = 10_000
"""Suspects of one kind that are looked at again and listed, a queue; of the rest only the number is reported."""
SETS = ("active", "pending", "schedule", "dead")
LANE_KEYS = {"ring": "list", "paused": "set", "glimit": "hash", "gactive": "hash", "gweight": "hash"}


class QueueExamination:
    """One queue under examination."""

    def __init__(self, server: Server, keys: Keys, max_flights: int, listed: frozenset[str] = frozenset()) -> None:
        self.server, self.keys, self.max_flights = server, keys, max_flights
        self.listed = listed
        self.ordinary: Counter[str] = Counter()
        self.notes: list[str] = []
        self.suspects: list[Finding] = []
        self.unlisted: Counter[str] = Counter()
        self.of_flows: list[str] = []
        """The rows that are of a flow."""
        self._known: set[tuple[str, str, bytes]] = set()
        self._listed: Counter[str] = Counter()
        self._rows: list[bytes] = []
        self._others: list[bytes] = []
        self._lanes: set[bytes] = set()
        self._jobs_fit = self._lanes_fit = True

    def check_types(self) -> None:
        """Where a set has another type, what rests on it can't be judged."""
        broken = self._broken([(name, "zset") for name in SETS])
        if broken:
            self._jobs_fit = False
            self.notes.append(f"{self.keys.queue}: jobs were not judged, since {broken} has another type")
        broken = self._broken([*LANE_KEYS.items(), ("active", "zset")])
        if broken:
            self._lanes_fit = False
            self.notes.append(f"{self.keys.queue}: lanes were not judged, since {broken} has another type")

    def _broken(self, wanted: Iterable[tuple[str, str]]) -> str:
        pairs = list(wanted)
        kinds = self.server.read_many([("TYPE", self.keys.named(name.encode())) for name, _ in pairs])
        return ", ".join(
            name for (name, kind), found in zip(pairs, kinds, strict=True) if found not in (b"none", kind.encode())
        )

    def take(self, key: bytes) -> None:
        """Sorts one key of the queue into a page, and judges the page when it is full."""
        name = self.keys.name_of(key)
        job, lane = key_names.row_of_name(name), key_names.lane_of_name(name)
        if job is not None:
            self._fill(self._rows, job, lambda page: self._judge_jobs("", page))
        elif lane is not None:
            self._lanes.add(lane)
        else:
            self._fill(self._others, name, self._judge_keys)

    def finish(self) -> None:
        """The last pages, then the members of every set, then the lanes."""
        self._judge_jobs("", self._rows)
        self._judge_keys(self._others)
        if self._jobs_fit:
            for name in SETS:
                self._judge_members(name)
        if self._lanes_fit:
            self._judge_lanes()
        if not self._broken([("repeat", "zset")]):
            for page in self._pages("ZSCAN", self.keys.repeat, step=2):
                self._judge_keys([b"repeat:" + name for name in page])

    def confirmed(self) -> list[Finding]:
        """The suspects that are still so, with what is seen now."""
        suspects, self.suspects = self.suspects, []
        self._known.clear()
        self._listed.clear()
        wanted = {finding.key for finding in suspects}
        jobs: dict[str, list[bytes]] = {}
        lanes: list[bytes] = []
        keys: list[bytes] = []
        for finding in suspects:
            if finding.place == LANE:
                lanes.append(finding.subject)
            elif finding.place == KEY:
                keys.append(finding.subject)
            else:
                jobs.setdefault(finding.place, []).append(finding.subject)
        for place, ids in jobs.items():
            for page in _in_pages(_unique(ids), PAGE):
                self._judge_jobs(place, page)
        for page in _in_pages(_unique(lanes), LANE_PAGE):
            self._judge_lane_page(page)
        for page in _in_pages(_unique(keys), PAGE):
            self._judge_keys(page)
        seen = [finding for finding in self.suspects if finding.key in wanted]
        # A row alone does not tell that its job stands in the lane of another.
        in_lanes = {f.subject for f in seen if key_names.lane_of_name(f.place.encode()) is not None}
        return [f for f in seen if f.kind != "lost_row" or f.subject not in in_lanes]

    def _fill(self, page: list[bytes], item: bytes, judge: Callable[[list[bytes]], None]) -> None:
        page.append(item)
        if len(page) >= PAGE:
            judge(page)
            page.clear()

    def _judge_members(self, name: str) -> None:
        for page in self._pages("ZSCAN", self.keys.named(name.encode()), step=2):
            for part in _in_pages(page, PAGE):
                self._judge_jobs(name, part)

    def _judge_lanes(self) -> None:
        k = self.keys
        for page in self._pages("SSCAN", k.paused, step=1):
            self._lanes.update(page)
        for key in (k.glimit, k.gactive, k.gweight):
            for page in self._pages("HSCAN", key, step=2):
                self._lanes.update(page)
        self._lanes.update(self.server.read("LRANGE", k.ring, 0, -1))
        if int(self.server.read("ZCARD", k.active)):
            self._lanes.update(self._groups_in_flight())
        lanes = sorted(self._lanes)
        fit = [group.decode("ascii") for group in lanes if group[:3] == b"GRP" and is_valid(group)]
        kinds = self.server.read_many([("TYPE", k.lane(group)) for group in fit])
        for group, kind in zip(fit, kinds, strict=True):
            if kind == b"zset" and self._jobs_fit:
                self._judge_members(k.name_of(k.lane(group).encode()).decode())
        for part in _in_pages(lanes, LANE_PAGE):
            if not self._judge_lane_page(part):
                return

    def _groups_in_flight(self) -> Iterator[bytes]:
        for page in self._pages("ZSCAN", self.keys.active, step=2):
            rows = [self.keys.row(job.decode()) for job in page if job[:3] == b"JOB" and is_valid(job)]
            kinds = self.server.read_many([("TYPE", row) for row in rows])
            fit = [row for row, kind in zip(rows, kinds, strict=True) if kind == b"hash"]
            yield from (g for g in self.server.read_many([("HGET", row, "group") for row in fit]) if g is not None)

    def _pages(self, command: str, key: str | bytes, *, step: int) -> Iterator[list[bytes]]:
        cursor: bytes = b"0"
        while True:
            cursor, flat = self.server.read(command, key, cursor, "COUNT", 1000)
            if flat:
                yield flat[::step]
            if cursor == b"0":
                return

    def _judge_jobs(self, place: str, ids: Sequence[bytes]) -> None:
        if ids and self._jobs_fit:
            reply = self.server.run(
                load("doctor_jobs"), [self.keys.active], [self.keys.base, place, *ids], readonly=True
            )
            self._note(reply, place)

    def _judge_keys(self, names: Sequence[bytes]) -> None:
        if names:
            reply = self.server.run(load("doctor_keys"), [self.keys.active], [self.keys.base, *names], readonly=True)
            self._note(reply, KEY)

    def _judge_lane_page(self, lanes: Sequence[bytes]) -> bool:
        if not lanes:
            return True
        args: list[Arg] = [self.keys.base, self.max_flights, *lanes]
        reply = self.server.run(load("doctor_lanes"), [self.keys.active], args, readonly=True)
        if reply == -1:
            self.notes.append(f"{self.keys.queue}: lanes were not judged: more than {self.max_flights} jobs in flight")
            return False
        self._note(reply, LANE)
        return True

    def _note(self, reply: Sequence[Sequence[bytes]], place: str) -> None:
        for subject, kind_name, detail in reply:
            kind = kind_name.decode("ascii")
            if kind == "flow":
                self.of_flows.append(subject.decode("ascii"))
                continue
            if KINDS[kind].ordinary and kind not in self.listed:
                self.ordinary[kind] += 1
                continue
            finding = Finding(self.keys.queue, kind, subject, detail.decode("utf-8", "backslashreplace"), place)
            if finding.key in self._known:
                continue
            if self._listed[kind] >= MAX_LISTED:
                self.unlisted[kind] += 1
                continue
            self._known.add(finding.key)
            self._listed[kind] += 1
            self.suspects.append(finding)


def _in_pages(items: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def _unique(items: Iterable[bytes]) -> list[bytes]:
    return list(dict.fromkeys(items))
