"""Overlays, includes, aliases, globs, and which line a value came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_ops.config.effective import Layers
from emq_ops.config.loader import load
from emq_ops.protocol import globs
from emq_ops.syntax.errors import SourceError


def layers(tmp_path: Path, *texts: str) -> Layers:
    files = []
    for i, text in enumerate(texts):
        files.append(tmp_path / f"c{i}.yaml")
        files[-1].write_text(text)
    return Layers(load(files, {}))


def where(found: Layers, queue: str, path: str) -> tuple[object, str]:
    value = next(v for v in found.effective(queue).values() if v.path == path)
    mark = value.mark
    return value.value, f"{Path(mark.file).name}:{mark.line}" if mark.line else mark.file


GLOBS = """\
defaults:
  stalled: {every: 30s}
  dead: {every: 10m, keep: 100, max_age: 30d}
queues:
  mail-eu-1: {dead: {keep: 4}}
  "mail-eu-*":
    dead: {keep: 3}
  "*": {dead: {keep: 1}}
  "mail-*": {dead: {keep: 2, max_age: null}}
  "mail-??-1": {stalled: {max_stalled: 5}}
  orders:
"""


@pytest.mark.parametrize(
    ("queue", "path", "expected"),
    [
        ("mail-eu-1", "dead.keep", (4, "c0.yaml:5")),
        ("mail-eu-2", "dead.keep", (3, "c0.yaml:7")),
        ("mail-us", "dead.keep", (2, "c0.yaml:9")),
        ("orders", "dead.keep", (1, "c0.yaml:8")),
        ("mail-eu-1", "dead.max_age", (None, "c0.yaml:9")),
        ("orders", "dead.max_age", ("30d", "c0.yaml:3")),
        ("orders", "dead.age_by", ("seen", "built-in default")),
        ("mail-us-1", "stalled.max_stalled", (5, "c0.yaml:10")),
        ("mail-us-1", "stalled.every", ("30s", "c0.yaml:2")),
    ],
)
def test_the_most_specific_wins_field_by_field(queue: str, path: str, expected: object, tmp_path: Path) -> None:
    assert where(layers(tmp_path, GLOBS), queue, path) == expected


def test_queues_are_those_named_and_those_that_live(tmp_path: Path) -> None:
    found = layers(tmp_path, GLOBS)
    assert found.queues(["mail-x", "other"]) == ["mail-eu-1", "mail-x", "orders", "other"]
    assert found.unmatched(["other"]) == ["mail-*", "mail-??-1", "mail-eu-*"]


def test_c20_brackets_are_part_of_a_name() -> None:
    queues = ["mail1", "mail[1]", "mail-2", "a*b", "axb"]
    assert globs.select("mail[1]", queues) == ["mail[1]"]
    assert globs.select("mail*", queues) == ["mail1", "mail[1]", "mail-2"]
    assert globs.select("a*b", queues) == ["a*b"]
    assert globs.select(r"a\*b", ["axb"]) == []
    assert globs.literal(r"a\*b") == "a*b"
    assert not globs.is_glob(r"a\*b")
    assert globs.select("nothing*", queues) == []


C14 = """\
x-d: &d
  dead: {keep: 5}
queues:
  mail: *d
  sms: *d
  push: *d
  merged:
    <<: *d
    stalled: {max_stalled: 2}
"""


def test_c14_overriding_one_user_of_an_alias_changes_it_alone(tmp_path: Path) -> None:
    found = layers(tmp_path, C14, "queues:\n  sms: {dead: {keep: 7}}\n")
    keeps = {queue: where(found, queue, "dead.keep") for queue in found.queues([])}
    assert keeps == {
        "mail": (5, "c0.yaml:2"),
        "merged": (5, "c0.yaml:2"),
        "push": (5, "c0.yaml:2"),
        "sms": (7, "c1.yaml:2"),
    }


def test_a_merge_is_below_what_stands_beside_it(tmp_path: Path) -> None:
    text = "x-a: &a {keep: 1, max_age: 1d}\nx-b: &b {keep: 2}\nqueues:\n  q: {dead: {<<: [*a, *b], max_age: 2d}}\n"
    found = layers(tmp_path, text)
    assert where(found, "q", "dead.keep") == (1, "c0.yaml:1")
    assert where(found, "q", "dead.max_age") == ("2d", "c0.yaml:4")


def test_later_files_overlay_and_included_ones_lie_below(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.yaml").write_text("queues:\n  a: {dead: {keep: 1}}\n  b: {dead: {keep: 1}}\n")
    (tmp_path / "more" / "b.yaml").write_text("queues:\n  b: {dead: {keep: 2}}\n  c: {dead: {keep: 2}}\n")
    found = layers(
        tmp_path,
        'include: ["more/*.yaml"]\nqueues:\n  c: {dead: {keep: 3}}\n  d: {dead: {keep: 3}}\n',
        "queues:\n  d: {dead: {keep: 4}}\n",
    )
    keeps = {q: where(found, q, "dead.keep") for q in found.queues([])}
    assert keeps == {"a": (1, "a.yaml:2"), "b": (2, "b.yaml:2"), "c": (3, "c0.yaml:3"), "d": (4, "c1.yaml:2")}


def test_an_entry_without_anything_in_it_takes_the_defaults(tmp_path: Path) -> None:
    effective = layers(tmp_path, GLOBS).effective("orders")
    assert effective.stalled is not None
    assert effective.selectors == ("*", "orders")


def test_a_stream_without_anything_in_it_takes_what_is_built_in(tmp_path: Path) -> None:
    effective = layers(tmp_path, "archive: {}\nqueues:\n  a:\n    streams:\n      completions:\n").effective("a")
    assert effective.streams["completions"]["every"] == "5s"


def test_a_pass_can_be_switched_off_for_one_queue(tmp_path: Path) -> None:
    found = layers(tmp_path, "defaults: {stalled: {}}\nqueues: {a: {}, b: {stalled: {enabled: false}}}\n")
    assert found.effective("a").stalled is not None
    assert found.effective("b").stalled is None


def test_archive_fields_hold_for_streams_that_say_nothing(tmp_path: Path) -> None:
    text = "archive:\n  ship_after: 2m\nqueues: {a: {streams: {x: {}, y: {ship_after: 3m}}}}\n"
    found = layers(tmp_path, text)
    assert where(found, "a", "streams.x.ship_after") == ("2m", "c0.yaml:2")
    assert where(found, "a", "streams.y.ship_after") == ("3m", "c0.yaml:3")


def test_names_that_yaml_takes_for_something_else_stay_names(tmp_path: Path) -> None:
    found = layers(tmp_path, "queues: {no: , 010: , 1e3: , null: , true: , 2024-01-01: , on: }\n")
    assert found.queues([]) == ["010", "1e3", "2024-01-01", "no", "null", "on", "true"]


def test_local_trims_are_refused_with_several_hosts(tmp_path: Path) -> None:
    text = "state: {url: 'postgresql://h/db'}\nqueues: {a: {streams: {x: {trim_after: local}}}}\n"
    with pytest.raises(SourceError, match="expected remote, since the state is PostgreSQL"):
        layers(tmp_path, text).check()


def test_without_a_file_everything_is_default() -> None:
    loaded = load([], {})
    assert loaded.config.server.url == "embedded"
    assert Layers(loaded).queues(["a"]) == []


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ("queues: {a: {dead: null}}", "c1.yaml:1:20: queues.a.dead: says nothing, over what"),
        ("queues:\n  a:\n", "c1.yaml:2:3: queues.a: says nothing, over what"),
        ("defaults: {stalled: ~}", "c1.yaml:1:21: defaults.stalled: says nothing, over what"),
        ("queues: {a: {dead: {redact: null}}}", "c1.yaml:1:29: queues.a.dead.redact: says nothing, over what"),
        ("queues: {a: {stalled: {max_stalled: null}}}", "max_stalled: expected a whole number, from 1 to 1000000, got"),
    ],
)
def test_null_over_a_section_is_refused_and_over_a_value_removes_it(over: str, says: str, tmp_path: Path) -> None:
    low = (
        "defaults: {stalled: {every: 9s}}\n"
        "queues: {a: {stalled: {max_stalled: 2}, dead: {keep: 5, max_age: 9d, redact: {drop: x}}}}\n"
    )
    with pytest.raises(SourceError) as caught:
        layers(tmp_path, low, over + "\n")
    assert says in str(caught.value)
    found = layers(tmp_path, low, "queues: {a: {dead: {keep: null}}, b: }\n")
    assert where(found, "a", "dead.keep") == (None, "c1.yaml:1")
    assert found.effective("b").stalled is not None
