"""Expressions: what they say, what of them is refused when they are read, and that none can run away."""

from __future__ import annotations

import resource
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emq_ops.syntax.budget import weigh
from emq_ops.syntax.errors import Position, SourceError
from emq_ops.syntax.expressions import Compiler, Condition, EvaluationError

COMPILER = Compiler()
BIG = "x" * 1_500_000


def value(text: str, **values: Any) -> Any:
    return COMPILER.expression(text).run(values)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("5%", 0.05), ("12.5%", 0.125), ("100%", 1.0), ("2m", 120_000), ("1h30m", 5_400_000), ("250ms", 250),
        ("1GiB", 1 << 30), ("512KiB + 1B", (512 << 10) + 1), ("[1d, 5%]", [86_400_000, 0.05]), ("7 % 4", 3),
        ("n % 4", 1), ("7 % n", 2), ("7 % (2)", 1), ("7 % -4", -1), ("n > 5% and n < 2m", True),
        ("(n if n > 50% else 0)", 5), ("5% in [0.05]", True), ("10% == 0.1", True), ("{'a': 5%}.a", 0.05),
        ("'5%' ~ '2m'", "5%2m"), ("'2m matches' == '2m matches'", True),
        ("q matches 'mail-*'", True), ("q not matches 'mail-*'", False), ("not q matches 'x*'", True),
        ("q matches 'm*' and n == 5", True), ("q matches g", True), ("q is matches('mail-?')", True),
        ("[q, 'o'] | select('matches', 'm*') | list", ["mail-1"]), ("m.matches", 1), ("matches + 1", 3),

    ],
)  # fmt: skip
def test_literals_and_the_glob_operator(text: str, result: Any) -> None:
    found = value(text, n=5, q="mail-1", g="m*", m={"matches": 1}, matches=2)
    assert (found, type(found)) == (result, type(result))


def test_a_template_takes_them_too() -> None:
    assert (
        COMPILER.template("{{ 2m }} of {{ 1KiB }}: 5% {{ q matches 'a' }}").run({"q": "a"}) == "120000 of 1024: 5% true"
    )


RUNAWAYS = {
    "loops in loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a replacement of each by many": "{{ big | replace('x', big) }}",
    "a replacement of nothing": "{{ big | replace('', big) }}",
    "a width": "{{ 'a' | indent(1000000000, true) }}",
    "a width as text": "{{ ('a\n' * 9999) | indent(big) }}",
    "a power": "{{ 9 ** 9 ** 9 ** 9 ** 9 }}",
    "a product": "{{ 'a' * 10 ** 10 }}",
    "a product of lists": "{{ [big] * 10 ** 9 }}",
    "one list many times": "{{ ([range(3000) | list] * 60000) | flatten | length }}",
    "a sum of lists": "{{ ([range(3000) | list] * 3000) | sum(start=[]) | length }}",
    "joined by much": "{{ range(99999) | map('string') | join(big) }}",
    "concatenated": "{{ (" + " ~ ".join(["big"] * 1000) + ") | length }}",
    "doubled": "{% set a = 'x' %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}",
    "written often": "{% for i in range(99999) %}{{ big }}{% endfor %}",
    "sought in a list, often": "{{ range(99999) | select('in', range(99999) | map('string') | list) | list }}",
    "compared often": "{% for i in range(99999) %}{{ i in many }}{% endfor %}",
    "a batch": "{{ [1] | batch(10 ** 9, 0) | list }}",
    "slices": "{{ [1] | slice(10 ** 9) | list }}",
    "a range": "{{ range(10 ** 9) | list }}",
    "a method, often": "{% for i in range(99999) %}{{ big.count('y') }}{% endfor %}",
    "slices of a list": "{% for i in range(99999) %}{{ many[1:] | length }}{% endfor %}",
    "sorted often": "{% for i in range(99999) %}{{ many | sort | length }}{% endfor %}",
    "a regular expression": "{{ ('a' * 60 ~ 'b') is search('(a|a)+$') }}",
    "regular expressions": "{% for i in range(9999) %}{{ ('a' * 28 ~ 'b') is search('(a|a)+$') }}{% endfor %}",
    "a replacement by groups": "{{ big | regex_replace('(.*)', '" + r"\\1" * 500 + "') }}",
    "json": "{% for i in range(9999) %}{{ many | to_json | length }}{% endfor %}",
}


@pytest.mark.parametrize("text", RUNAWAYS.values(), ids=RUNAWAYS.keys())
def test_no_template_runs_away(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process and thread: within a few times the budget's seconds of processor time, and little memory."""
    seconds = 0.2
    monkeypatch.setattr("emq_ops.syntax.budget.CPU_SECONDS", seconds)
    monkeypatch.setattr("emq_ops.syntax.filters.REGEX_SECONDS", seconds)
    compiled = COMPILER.template(text)
    before, held = time.thread_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(EvaluationError):
        compiled.run({"big": BIG, "many": [str(n) for n in range(50_000)]})
    assert time.thread_time() - before < 4 * seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 300 << 10  # KiB


def test_what_an_honest_template_does_with_much_is_within_its_means() -> None:
    ids = [f"JOB{n:011}" for n in range(200_000)]
    assert value("ids | length", ids=ids) == len(ids)
    assert value("(ids | sort)[:3] | join(', ')", ids=ids) == ", ".join(ids[:3])
    assert value("ids | select('matches', '*7') | list | length", ids=ids[:20_000]) == 2_000
    assert COMPILER.template("{% for i in ids %}{{ i }}{% endfor %}").run({"ids": ids[:20_000]}) == "".join(
        ids[:20_000]
    )


def test_each_evaluation_has_means_of_its_own() -> None:
    compiled = COMPILER.template("{{ ['x' * 999999] | length }}")
    for _ in range(200):
        assert compiled.run({}) == 1


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("lenght > 5", 1, "unknown name 'lenght' (did you mean 'length'?)"),
        ("length > 5% and dead > 'dead'", 17, "unknown name 'dead'"),
        ("'qeue' == qeue", 11, "unknown name 'qeue' (did you mean 'queue'?)"),
        ("queue.zone == zone", 15, "unknown name 'zone'"),
        ("length >\n  lag", 3, "unknown name 'lag'"),
        ("length >", 1, "in the expression: "), ("length | lenght", 1, "unknown filter 'lenght'"),
        ("length is oddly", 1, "unknown test 'oddly'"), ("a b", 1, "more text after the end"), ("", 1, "an empty"),
    ],
)  # fmt: skip
def test_a_condition_is_checked_when_it_is_read(text: str, column: int, says: str) -> None:
    with pytest.raises(SourceError) as caught:
        Condition.read(text, Position("c.yaml", 7, 1), {"queue", "length"})
    line = 7 + text.count("\n")
    assert str(caught.value).startswith(f"c.yaml:{line}:{column}: ")
    assert says in str(caught.value)


def test_a_condition_holds_or_does_not() -> None:
    found = Condition.read("queue matches 'mail-*' and share >= 5%", Position("c.yaml", 7, 9), {"queue", "share"})
    assert found.holds({"queue": "mail-1", "share": 0.05})
    assert not found.holds({"queue": "orders", "share": 1})
    assert Condition.read("gone is defined", Position("c.yaml", 1, 1), set()).holds({}) is False
    with pytest.raises(SourceError, match=r"c\.yaml:7:9: in '.*': 'share' is undefined"):
        found.holds({"queue": "mail-1"})
    with pytest.raises(SourceError, match="must be true or false, it is the number 3"):
        Condition.read("share", Position("c.yaml", 1, 1), {"share"}).holds({"share": 3})


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=30,
)


@settings(max_examples=50, deadline=None)
@given(PLAIN)
def test_weight_grows_with_what_is_in_it_and_stops_at_its_bound(data: Any) -> None:
    whole = weigh(data, 1 << 30)
    assert whole >= 16
    assert weigh([data, data], 1 << 30) > 2 * whole
    assert weigh(data, whole // 2) == whole // 2
    assert weigh(data, whole + 1) == whole
