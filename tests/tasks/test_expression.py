from __future__ import annotations

import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.tasks.expression import MAX_CHARS, ExpressionError, parse

DEEP = (MAX_CHARS - 1) // 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        (" 3+5 ", 8),
        ("\t3 +\n5", 8),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("10 - 4 - 3", 3),
        ("24 / 4 / 3", 2),
        ("24 / (4 / 3)", 18),
        ("1 / 3", Fraction(1, 3)),
        ("1/3*3", 1),
        ("3 - 5", -2),
        ("0 * 9", 0),
        ("0 / 9", 0),
        ("3 × 5 ÷ 5", 3),
        ("9 − 4", 5),
        ("9 – 4", 5),
        ("3\u00a0+\u00a05", 8),
        ("007 + 1", 8),
        ("999999999 * 999999999", 999999999**2),
        ("(" * DEEP + "1" + ")" * DEEP, 1),
    ],
)
def test_values(text, value):
    assert parse(text).value == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-3",
        "+3",
        "3 + -5",
        "(-3)",
        "2(3)",
        "(2)(3)",
        "2 3",
        "2 ** 3",
        "2 * * 3",
        "7 // 2",
        "7 % 2",
        "2^3",
        "1 +",
        "* 2",
        "(1 + 2",
        "1 + 2)",
        "()",
        "1.5 + 2",
        "1,000",
        "1_000",
        "1e3",
        "0x10",
        "3 + 5 = 8",
        "= 8",
        "4 / 0",
        "4 / (2 - 2)",
        "0 / 0",
        "1 / (1 / 3 - 2 / 6)",
        "９ + 1",
        "٣ + 1",
        "² + 1",
        "½",
        "３",
        "9**9**9",
        "1234567890",
        "9" * 150,
        "three plus five",
        "__import__('os')",
        "__import__('os').system('x')",
        "lambda: 1",
        "<ANSWER> 3 </ANSWER>",
        "\x00",
        "1 + \ud800",
        "(" * 10_000,
        "1" + "+1" * 5_000,
        "(" * (DEEP + 1) + "1" + ")" * (DEEP + 1),
        "1" * (MAX_CHARS + 1),
    ],
)
def test_not_expressions(text):
    with pytest.raises(ExpressionError):
        parse(text)


def test_what_it_used():
    expression = parse("(7 + 3) * 3 - 8 / 2")
    assert (expression.value, expression.numbers, expression.operators) == (26, (2, 3, 3, 7, 8), (1, 1, 1, 1))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("3 + 5", "5 + 3", True),
        ("(3 + 5) * 2", "2 * (5 + 3)", True),
        ("3 * 2 + 5", "(3 + 5) * 2", True),  # same numbers, same operators: one solution, whatever it is worth
        ("3 + 5", "3 - 5", False),
        ("3 + 3", "3 + 3 + 3", False),
        ("3 + 5 + 5", "3 + 3 + 5", False),
    ],
)
def test_keys_tell_solutions_apart(one, other, same):
    assert (parse(one).key == parse(other).key) == same


_NUMBERS = st.integers(0, 999_999_999)


def _grow(parts: st.SearchStrategy[tuple]) -> st.SearchStrategy[tuple]:
    return st.tuples(parts, st.sampled_from("+-*/"), parts, st.booleans())


TREES = st.recursive(_NUMBERS, _grow, max_leaves=9)


def _value(tree: int | tuple) -> Fraction | None:
    if isinstance(tree, int):
        return Fraction(tree)
    left, operator, right = _value(tree[0]), tree[1], _value(tree[2])
    if left is None or right is None or (operator == "/" and right == 0):
        return None
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            return left / right


def _render(tree: int | tuple, above: int = 0) -> str:
    """As few parentheses as keep the value, unless the tree asks for more. Precedence: 1 sum, 2 product."""
    if isinstance(tree, int):
        return str(tree)
    left, operator, right, spaced = tree
    level = 1 if operator in "+-" else 2
    text = f"{_render(left, level)}{' ' * spaced}{operator}{' ' * spaced}{_render(right, level + 1)}"
    return f"({text})" if level < above else text


def _leaves(tree: int | tuple) -> list[int]:
    return [tree] if isinstance(tree, int) else _leaves(tree[0]) + _leaves(tree[2])


def _operators(tree: int | tuple) -> str:
    return "" if isinstance(tree, int) else _operators(tree[0]) + tree[1] + _operators(tree[2])


@given(TREES)
def test_parse_gives_the_exact_value_of_any_tree(tree):
    value = _value(tree)
    if value is None:
        with pytest.raises(ExpressionError, match="division by zero"):
            parse(_render(tree))
        return
    expression = parse(_render(tree))
    assert expression.value == value
    assert expression.numbers == tuple(sorted(_leaves(tree)))
    assert expression.operators == tuple(_operators(tree).count(operator) for operator in "+-*/")


@given(st.text(alphabet="0123456789+-*/() ×÷−=.,ab\n", max_size=30) | st.text(max_size=30))
def test_any_text_has_a_value_or_is_refused(text):
    with suppress(ExpressionError):
        assert isinstance(parse(text).value, Fraction)


def test_threads_parse_at_once():
    """The garbage collector may switch threads while Python makes a tree. Here it often does."""
    text = "(" * 40 + "1" + "+1)" * 40

    def switch(*_):
        time.sleep(0)

    before, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.callbacks.append(switch)
    gc.set_threshold(5, 2, 2)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert {one.value for one in threads.map(parse, [text] * 4000)} == {41}
    finally:
        gc.callbacks.remove(switch)
        gc.set_threshold(*before)
        sys.setswitchinterval(interval)
