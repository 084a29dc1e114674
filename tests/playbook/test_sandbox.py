"""Where a template is evaluated: in place only what is bounded by what it says, reads and makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emq_ops.playbook.evaluator import EvaluationError, Evaluator
from emq_ops.playbook.sandbox import MAX_HERE, Compiler, TooMuchHere, weigh

IDS = [f"JOB{n:011}" for n in range(MAX_HERE // 16)]


@pytest.fixture
def evaluator() -> Iterator[Evaluator]:
    made = Evaluator({})
    yield made
    made.close()


@pytest.mark.parametrize(
    ("source", "values", "here"),
    [
        ("{{ 1 + 1 }}", {}, True),
        ("{{ seen.dead <= most }}", {"seen": {"dead": 1}, "most": 2}, True),
        ("{{ found.count > 0 }}", {"found": {"count": 1, "ids": IDS}}, True),  # the ids are not read
        ("{{ found.ids | length }}", {"found": {"count": 1, "ids": IDS}}, False),
        ("{{ found | length }}", {"found": {"count": 1, "ids": IDS}}, False),
        ("{{ found.items() | list | length }}", {"found": {"count": 1, "ids": IDS}}, False),
        ("{{ 'x' * 100 }}", {}, True),
        ("{{ ('x' * 100000) | length }}", {}, False),
        ("{{ ([l] * 1000) | length }}", {"l": [1] * 100}, False),  # short, and heavy
        ("{{ range(10) | list }}", {}, True),
        ("{{ range(10000) | list | length }}", {}, False),
        ("{{ x ~ x ~ x ~ x }}", {"x": "y" * (MAX_HERE // 3)}, False),
        ("{% for x in [1] %}{{ x }}{% endfor %}", {}, False),
        ("{{ 'a' | regex_search('a') }}", {}, False),
    ],
)
def test_where(evaluator: Evaluator, source: str, values: dict[str, Any], here: bool) -> None:
    compiled = Compiler().template(source)
    evaluator.evaluate(compiled, values, expression=False)
    assert (evaluator._child is None) is here


def test_the_child_comes_to_the_same(evaluator: Evaluator) -> None:
    for text in ("n * 2", "x[0] ~ x[1]", "m.a.b", "x | map('upper') | list", "n > 2 and not m.c"):
        values = {"n": 3, "x": ["a", "b"], "m": {"a": {"b": None}, "c": False}}
        compiled = Compiler().expression(text)
        assert compiled.plain
        assert evaluator._ask(text, values, expression=True) == evaluator.evaluate(compiled, values, expression=True)


def test_what_operators_make_is_counted_over_the_whole_evaluation() -> None:
    compiled = Compiler().template("{{ [" + ", ".join(["'x' * 9999"] * 8) + "] | length }}")
    with pytest.raises(TooMuchHere):
        compiled.run({}, lambda: None)
    fine = Compiler().template("{{ ['x' * 9999] | length }}")
    for _ in range(20):  # each evaluation counts for itself
        assert fine.run({}, lambda: None) == 1


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=30,
)


@settings(max_examples=50, deadline=None)
@given(PLAIN)
def test_weight_grows_with_what_is_in_it_and_stops_at_its_bound(value: Any) -> None:
    whole = weigh(value, 1 << 30)
    assert whole >= 16
    assert weigh([value, value], 1 << 30) > 2 * whole
    assert weigh(value, whole // 2) == whole // 2
    assert weigh(value, whole + 1) == whole


def test_an_error_of_the_child_has_its_reason(evaluator: Evaluator) -> None:
    with pytest.raises(EvaluationError, match="not a regular expression"):
        evaluator.evaluate(Compiler().expression("'a' | regex_search('(')"), {}, expression=True)
