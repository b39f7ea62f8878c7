"""When outputs of programs are equal: laws, and the odd cases of LiveCodeBench."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orgthink_arena.judges.harness import plain
from orgthink_arena.tasks.bench.program_tests import printed, returned, same_returned

NUMBERS = st.sampled_from(["1", "1.0", "01", "+1", "1e0", "0.1", "1_0", "10", "nan", "inf", "Infinity", "-0", "0", "x"])
PRINTED = st.lists(st.lists(NUMBERS, max_size=2).map(" ".join), max_size=2).map("\n".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, 0.5, "", "a", "é"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("right", "output", "same"),
    [
        ("1 2\n3", "1 2\n3\n", True),
        ("1 2\n3", "  1 2  \r\n3\t\n\n", True),
        ("1 2", "1  2", True),
        ("a b", "a  b", False),
        ("1", "1.000", True),
        ("0.1", "0.10000000000000001", False),
        ("50000000000000000", "50000000000000001", False),
        ("1e3", "1000", True),
        ("11", "1_1", False),
        ("1_1", "11", False),
        ("1_1", "1_1", True),
        ("12", "１２", False),
        ("nan", "nan", True),
        ("nan 1", "nan 1.0", False),
        ("yes", "Yes", False),
        ("1\n2", "1 2", False),
        ("1\n2", "1\n\n2", False),
        ("", "\n \n", True),
        ("(1, 2)", "(1, 2)", True),
        ("1 2", "(1, 2)", False),
        ("1", "1e99999999999999999999", False),
    ],
)
def test_printed(right, output, same):
    assert (printed(right) == printed(output)) is same


@given(PRINTED)
def test_an_output_is_itself(one):
    assert printed(one) == printed(f" {one} \n")


@given(JSON, JSON)
def test_returned_as_python_compares(one, other):
    """What a function returns travels as plain data, and is equal to what Python says is equal."""
    assert same_returned(json.dumps(one), json.dumps(plain(other, top=True))) == (one == other)


@pytest.mark.parametrize(
    ("right", "value", "same"),
    [
        ([1, 2], (1, 2), True),
        ([[1, 2]], [(1, 2)], False),
        (1, True, True),
        (1, 1.0, True),
        (1, "1", False),
        ([], {}, False),
        ({"items": []}, {}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"1": 1}, {1: 1}, False),
        ([1], {1}, False),
        (1, Decimal(1), False),
        (None, object(), False),
        ([1], range(1, 2), False),
    ],
)
def test_returned(right, value, same):
    assert same_returned(json.dumps(right), json.dumps(plain(value, top=True))) is same


@pytest.mark.parametrize(
    "output", ["", "1 2", "{}", '{"items": 1}', '{"items": [1]}', '{"x": []}', "[" * 99_999, "9" * 9999]
)
def test_what_is_no_plain_data(output):
    assert not same_returned("1", output)
    with pytest.raises(ValueError):
        returned(output)
