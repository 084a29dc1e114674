"""Which dead jobs are meant, and what the texts of their errors have in common."""

from __future__ import annotations

import pytest

from emq_ops.passes.acts.deadset import DeadSet
from emq_ops.passes.acts.errortext import group_of, normalise, text_of
from emq_ops.passes.acts.selection import DeadSelection, EmptySelectionError, nothing, select
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, enqueue, settle
from tests.support.keyspace import load_live


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (None, ""),
        (b"stalled", "stalled"),
        (b"HTTP 503 Service Unavailable", "HTTP 503 Service Unavailable"),
        (b"HTTP/1.1 404 for user 17", "HTTP/1.1 404 for user #"),
        (b"timeout after 5000ms at https://x.test/v1/33", "timeout after #ms at https://x.test/v1/#"),
        (b"refused 10.0.42.7:5432", "refused #ip:#"),
        (b"** (KeyError) key :a not in: %{id: 6}\n    (x 1.2)", "** (KeyError) key :a not in: %{id: #} (x #)"),
        (b"no JOB0STBBIRAKHo, 550e8400-e29b-41d4-a716-446655440000, 0xdeadBEEF", "no #id, #uuid, #hex"),
        (b"#PID<0.12.3> at 2024-01-02T03:04:05.6Z", "#pid at #time"),
        (b"utf8 v2 sha1 x123", "utf8 v2 sha1 x#"),
        (b"\x1b[31mred\x07 \xff", "\\x1b[#mred\\x07 \\xff"),
    ],
)  # fmt: skip
def test_normalised(raw: bytes | None, text: str) -> None:
    assert normalise(raw) == text
    assert normalise(text.encode()) == text


def test_long_texts_are_cut_visibly() -> None:
    assert normalise(b"a" * 10_000_000) == "a" * 200 + "…"
    assert text_of(b"ab" * 100, 10) == "ababababab… (200 bytes)"
    assert text_of(b"ab", 10, whole=5_000_000) == "ab… (5000000 bytes)"
    assert group_of("error", "x") != group_of("stalled", "x")


def kill(q: Queue, error: bytes, payload: bytes = b"{}", group: str | None = None) -> str:
    job = ids.mint()
    enqueue.enqueue(q, job, payload, group=group)
    claim = claims.claim_lane(q, 60_000) if group else claims.claim(q, 60_000)
    assert claim is not None
    settle.retry(q, job, claim.token, settle.Failure(error, delay_ms=0, max_attempts=1))
    return job


def test_filters(server: Server) -> None:
    q = Queue(server, "orders")
    a, b = kill(q, b"HTTP 503", b"customer 7"), kill(q, b"refused 10.0.0.1:80", b"customer 8")
    c = kill(q, b"refused 10.0.0.2:81", b"\xff\x00customer 7", ids.mint("GRP"))

    def taken(**given: object) -> list[str]:
        return [job.job for job in select(server, "orders", DeadSelection(**given))]  # type: ignore[arg-type]

    assert taken() == [a, b, c]
    assert taken(errors=("refused 10.9.9.9:1234",)) == [b, c]
    assert taken(errors=("refused*",)) == [b, c]
    assert taken(errors=(group_of("error", "HTTP 503"),)) == [a]
    assert taken(payload=b"customer 7") == [a, c]
    assert taken(payload=b"customer 7", errors=("refused*",)) == [c]
    assert taken(jobs=(b, ids.mint())) == [b]
    assert taken(causes=("stalled",)) == []
    assert taken(causes=("error", "stalled")) == [a, b, c]
    assert taken(older_ms=1) == []  # nobody recorded when they died: they are first seen now
    assert taken(newer_ms=0) == [a, b, c]
    assert taken(killed_by="RUN0STBBIRAKHo") == taken(interruption=1) == []
    assert taken(errors=("HTTP 50*",), causes=("error",)) == [a]


def test_what_can_be_no_selection() -> None:
    for given in (
        {"causes": ("bored",)},
        {"jobs": ("JOB1",)},
        {"jobs": ("GRP0STBBIRAKHo",)},
        {"older_ms": -1},
        {"errors": ("",)},
        {"errors": ("HTTP 503", " \t")},
    ):
        with pytest.raises(EmqError):
            DeadSelection(**given)  # type: ignore[arg-type]
    assert issubclass(EmptySelectionError, BadInputError)
    assert "causes stalled" in str(nothing(["orders"], DeadSelection(causes=("stalled",))))
    assert "first seen now" in str(nothing(["orders"], DeadSelection(older_ms=5)))


def test_the_live_dead_letters(server: Server) -> None:
    load_live(server)
    groups: dict[tuple[str, str], int] = {}
    for name in server.queues():
        dead = DeadSet(server, name)
        for job in dead:
            groups[job.cause, job.error_text] = groups.get((job.cause, job.error_text), 0) + 1
        assert (dead.malformed, dead.left, dead.disorder) == (0, 0, False)
    assert sum(groups.values()) == 86
    assert groups == {
        ("stalled", "stalled"): 22,
        ("error", "** (KeyError) key :email not found in: %{id: #}"): 12,
        ("error", "HTTP 503 Service Unavailable"): 12,
        ("error", '=HYPERLINK("http://evil.test")'): 12,
        ("error", "connection refused #ip:#"): 11,
        ("error", "timeout after #ms calling https://api.example.test/v1/orders/#"): 8,
        ("error", "<script>alert(#)</script>"): 7,
        ("flow", ""): 2,
    }


def test_damaged_and_odd_members(server: Server) -> None:
    q = Queue(server, "orders")
    kept = kill(q, b"x" * 5_000_000)
    server.write("ZADD", q.keys.dead, 0, "not a job", 0, ids.mint(), 0, b"\xff")
    dead = DeadSet(server, "orders")
    found = {job.job: job for job in dead}
    assert dead.malformed == 2
    assert [job.damaged for job in found.values()].count(True) == 1
    assert found[kept].error_size == 5_000_000
    assert len(found[kept].error or b"") == 4096
    server.write("ZADD", q.keys.dead, 5, kept)
    again = DeadSet(server, "orders")
    assert len(list(again)) == 2
    assert again.disorder
