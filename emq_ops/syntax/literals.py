"""What an expression may say beside Jinja's own words: ``5%``, ``2m``, ``1h30m``, ``1GiB``, ``name matches 'mail-*'``.

Works on tokens, so texts and comments are left alone. A duration is a number of ms, a size a number of bytes, ``5%``
is 0.05.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jinja2.lexer import Token, TokenStream

from emq_ops.policy.scalars import parse_duration, parse_size

_NUMBERS = ("integer", "float")
_OPERANDS = frozenset({"integer", "float", "string", "lparen", "lbracket", "lbrace", "sub", "add"})
_JOINING = frozenset({"and", "or", "not", "in", "is", "if", "else", "matches"})


def with_literals(stream: TokenStream) -> Iterator[Token]:
    """The tokens with our literals as numbers, and ``matches`` as the test of that name."""
    tokens = [*stream]
    at = 0
    while at < len(tokens):
        token = tokens[at]
        after = tokens[at + 1] if at + 1 < len(tokens) else None
        if token.type in _NUMBERS and after is not None:
            if after.type == "name" and (value := _with_unit(token, after)) is not None:
                yield Token(token.lineno, "integer", value)
                at += 2
                continue
            if after.type == "mod" and not _operand(tokens[at + 2] if at + 2 < len(tokens) else None):
                share: Any = token.value / 100
                yield Token(token.lineno, "float", share)
                at += 2
                continue
        negated = token.test("name:not") and after is not None and after.test("name:matches")
        if negated or (token.test("name:matches") and _infix(tokens, at)):
            yield Token(token.lineno, "name", "is")
            if negated:
                yield token
                at += 1
            yield Token(token.lineno, "name", "matches")
        else:
            yield token
        at += 1


def _with_unit(number: Token, unit: Token) -> Any:
    """The duration or size that a number and the word behind it are, None where they are none."""
    text = f"{number.value}{unit.value}"
    for parse in (parse_duration, parse_size):
        try:
            return parse(text)
        except ValueError:
            continue
    return None


def _operand(token: Token | None) -> bool:
    """Whether an operand begins here, so that a ``%`` before it is the operator."""
    if token is None:
        return False
    return token.type in _OPERANDS or (token.type == "name" and token.value not in _JOINING)


def _infix(tokens: list[Token], at: int) -> bool:
    """Whether ``matches`` stands between two operands: not behind ``is``, ``.`` or ``|``, nor as a variable."""
    if at == 0 or at + 1 >= len(tokens) or not _operand(tokens[at + 1]):
        return False
    before = tokens[at - 1]
    if before.type == "name":
        return before.value not in _JOINING
    return before.type in ("string", "integer", "float", "rparen", "rbracket", "rbrace")
