"""Globs: what they match, and that no selector makes matching slow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emq_ops.protocol import globs

TEXTS = st.text(alphabet="ab*?\\\n.", max_size=8)


def slowly(selector: str, text: str) -> bool:
    """What a glob means, letter by letter."""
    if not selector:
        return not text
    head, rest = selector[0], selector[1:]
    if head == "*":
        return any(slowly(rest, text[at:]) for at in range(len(text) + 1))
    if head == "\\" and rest:
        head, rest = rest[0], rest[1:]
    elif head == "?":
        return bool(text) and slowly(rest, text[1:])
    return text[:1] == head and slowly(rest, text[1:])


@given(TEXTS, TEXTS)
def test_a_glob_means_what_it_says(selector: str, text: str) -> None:
    assert globs.matches(selector, text) == slowly(selector, text)


@pytest.mark.parametrize("part", ["*a", "*?", "**", "?*a"])
def test_no_selector_is_slow(part: str) -> None:
    """One that goes back over every star would not end in our lifetime."""
    assert not globs.matches(part * 40 + "*b", "a" * 4000)
    assert globs.matches(part * 40, "a" * 4000)
