"""YAML as a tree: two parsers that must read alike, and what YAML 1.2 takes plain scalars for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ruamel.yaml.error import YAMLError

from emq_ops.syntax.careful import sure
from emq_ops.syntax.errors import SourceError
from emq_ops.syntax.events import UnsureError, YamlEvent, fast
from emq_ops.syntax.tree import Tree, _Builder, parse, plain

ROOT = Path(__file__).parents[2]
PIECES = [
    *(
        "a",
        "b",
        "key",
        "x y",
        "0",
        "010",
        "1e3",
        "22:30",
        "no",
        "null",
        "~",
        ": ",
        ": ",
        ": ",
        ": ",
        ":",
        "- ",
        "-",
        "?",
    ),
    *(
        "? ",
        ", ",
        ",",
        "[",
        "]",
        "{",
        "}",
        "#",
        " # c",
        "'",
        '"',
        "'a b'",
        '"c\\n"',
        '"\\u00e9"',
        "&a ",
        "*a",
        "*a",
        "<<: ",
    ),
    *(
        "!!str ",
        "!x ",
        "|",
        "|-",
        ">",
        "--- ",
        "...",
        "%",
        "@",
        "`",
        "é",
        "\u00a0",
        "\u2028",
        "\U0001f600",
        "\\",
        "${A}",
    ),
    *('"${A:-b}"', "http://x", "=", "''", "::", "a#b", "{a: 1}", "[a, b]", '{"a":1}', "{a:1}", "a?", "?a", "\t", "\r"),
    *("\n", "\n", "\n", "\n  ", "\n  ", "\n    ", "\n- ", "\n  - ", "\n---\n", "\n...\n", " ", "  "),
]


def read(parser: Callable[[str], Iterator[YamlEvent]], text: str) -> Tree | str | None:
    """The tree; "refused"; None where the parser leaves the text to the other one."""
    try:
        return _Builder("f", parser(text)).document()
    except UnsureError:
        return None
    except (SourceError, YAMLError):
        return "refused"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("queues:\n  mail-*: {dead: {keep: 3}, note: 'a: b'}\n  é: [1, *a]\n")
@example("x-a: &a {b: 1}\nqueues:\n  q: {<<: *a, c: }\n  r:\n- s\n")
@example("*a: b\n")
@example("a: |+\n  \n    b\n")
@example("a: b\n...\n...")
@example("[? a: 1]")
def test_both_parsers_read_the_same_values_at_the_same_places(text: str) -> None:
    quick = read(fast, text)
    if quick is not None:
        assert quick == read(sure, text)


@pytest.mark.parametrize("file", [ROOT / "config.yaml", *sorted(ROOT.glob("playbooks/*.yaml"))], ids=lambda f: f.name)
def test_what_ships_is_read_by_the_fast_parser_and_alike(file: Path) -> None:
    text = file.read_text()
    quick = read(fast, text)
    assert quick is not None
    assert quick == read(sure, text)


@pytest.mark.parametrize("crlf", [False, True])
@pytest.mark.parametrize("bom", [False, True])
def test_a_byte_order_mark_and_carriage_returns_change_nothing(bom: bool, crlf: bool) -> None:
    text = b"queues:\n  a: {note: 'x'}\n  b:\n    note: y\n"
    odd = (b"\xef\xbb\xbf" if bom else b"") + (text.replace(b"\n", b"\r\n") if crlf else text)
    assert parse(odd, "f") == parse(text, "f")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("NULL", None), ("nUll", "nUll"),
        ("true", True), ("False", False), ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"),
        ("0", 0), ("-0", 0), ("12", 12), ("-12", -12), ("1.5", 1.5), ("9223372036854775808", 9223372036854775808),
        ("010", 10), ("0o10", 8), ("0x1F", 31), ("00.5", 0.5), ("+5", 5), ("1_000", "1_000"), ("1e3", 1000.0),
        ("1.", 1.0), (".5", 0.5), (".inf", math.inf), ("-.INF", -math.inf), ("9" * 30, int("9" * 30)),
        ("9" * 500, "9" * 500), ("0b11", "0b11"), ("0o9", "0o9"), ("+.inf", math.inf), ("+0x1F", "+0x1F"),
        (".", "."), ("1e", "1e"), ("e3", "e3"), ("--1", "--1"), ("-1E-2", -0.01),
        ("22:30", "22:30"), ("2026-03-01", "2026-03-01"), ("2026-03-01T22:00:00Z", "2026-03-01T22:00:00Z"),
        ("1d", "1d"), ("1.2.3", "1.2.3"), ("=", "="), ("'5'", "5"), ('"true"', "true"), ("'~'", "~"), ("-", [None]),
        ("!!str 5", "5"), ("!!str no", "no"), ("! 5", "5"), ("!!int '5'", "5"), ("!!null x", None),
        ('"\\ud83d\\ude00"', "\U0001f600"), ("|\n  a\n  b\n", "a\nb\n"),
        (">-\n  a\n  b\n", "a b"),
    ],
)  # fmt: skip
def test_plain_scalars_are_what_yaml_1_2_says(text: str, value: object) -> None:
    found = plain(parse(f"a: {text}\n".encode() if text != "-" else b"a:\n-\n", "f"))["a"]
    assert (found, type(found)) == (value, type(value))
