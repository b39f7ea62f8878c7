"""Answers of several values: coordinates, and lists of formulas."""

import pytest

from orgthink.tasks.math import MATH
from orgthink.tasks.math_guard import is_same
from orgthink.tasks.vote import vote


@pytest.mark.parametrize(
    ("one", "other"), [("(0.5,3)", r"(\frac12,3)"), ("x=1, y=2", "(1,2)"), ("y=3, x=0.5", r"(x,y)=(\frac12,3)")]
)
def test_two_spellings_of_a_tuple_are_one_vote(one, other):
    assert vote(MATH.problem("Which point?", one), ["no", "no", one, other, other]) == one


def test_coordinates_with_names_are_no_list():
    assert vote(MATH.problem("Which?", "1,2"), ["no", "no", "no", "x=1, y=2", "1,2", "x=1, y=2", "2,1"]) == "no"


def test_more_than_four_formulas_are_compared():
    roots = [r"\sqrt{2}", r"\sqrt{3}", r"\sqrt{5}", r"\sqrt{6}", r"\sqrt{7}"]
    assert is_same(", ".join(roots), ",".join(reversed(roots)))
    assert not is_same(", ".join(roots), ",".join([*roots[1:], r"\sqrt{8}"]))
    assert not is_same(", ".join(roots), ",".join([*roots[1:], roots[1]]))


@pytest.mark.parametrize(
    ("right", "offered"),
    [
        ("-1, 3, 3", "-1, -1, 3"),
        ("1,2,2", "1,1,2"),
        ("(1,2),(1,2),(3,4)", "(1,2),(3,4),(3,4)"),
        (r"\sqrt2,\sqrt3,\sqrt3", r"\sqrt2,\sqrt2,\sqrt3"),
    ],
)
def test_a_value_is_there_as_often_as_it_is_right(right, offered):
    assert not is_same(right, offered) and is_same(right, ",".join(reversed(right.split(",")))) is ("(" not in right)
    assert is_same(right, right.replace(",", ", "))


@pytest.mark.parametrize(
    ("right", "offered", "accepted"),
    [
        (r"0.1x+\sqrt2", r"\frac{x}{10}+\sqrt{2}", True),
        (r"0.5\sqrt{2}", r"\frac{\sqrt2}{2}", True),
        ("x^{0.5}", r"\sqrt{x}", True),
        (r"x+\sqrt{2}", "x+1.41421356237310", False),
        ("0.1x", "0.1000000000001x", False),
    ],
)
def test_decimal_fractions_in_formulas_are_exact(right, offered, accepted):
    assert is_same(right, offered) is accepted
