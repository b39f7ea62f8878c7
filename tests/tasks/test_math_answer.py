"""What `is_same` makes of marks of formulas, of names of a right result, and of colons."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.tasks.math_answer import found, is_same
from orgthink.tasks.math_votes import vote_for

FORMULAS = ("42", r"\frac{1}{2}", r"9\pi", "-3", r"\sqrt{2}")
UNITS = ("cm", "meters", "degrees", "hours", "dollars", "km", r"\text{cm}", r"\text{ square feet}", "apples")
MARKS = (("$", "$"), ("$$", "$$"), (r"\(", r"\)"), (r"\[", r"\]"), ("$ ", " $"))
NAMES = ("m+n", "AB", "f(2)", r"\theta", r"\angle A", "|S|", r"\text{Area}", "x_1+x_2", r"\overline{AB}")


@given(st.sampled_from(FORMULAS), st.sampled_from(UNITS), st.sampled_from(MARKS))
def test_marks_before_a_unit_mean_nothing(formula: str, unit: str, marks: tuple[str, str]) -> None:
    bare, marked = f"{formula} {unit}", f"{marks[0]}{formula}{marks[1]} {unit}"
    assert found(marked).split() == bare.split() and found(found(marked)) == found(marked)
    assert vote_for(marked) == vote_for(bare)
    assert is_same(formula, marked) and is_same(bare, marked) and is_same(marked, bare)


@given(st.sampled_from(FORMULAS), st.sampled_from(MARKS), st.sampled_from([", ", " and ", " or "]))
def test_marks_around_each_of_several_values_mean_nothing(formula: str, marks: tuple[str, str], between: str) -> None:
    values = [f"x={formula}", "x=17"]
    bare, marked = between.join(values), between.join(f"{marks[0]}{value}{marks[1]}" for value in values)
    assert vote_for(marked) == vote_for(bare)
    assert is_same(f"17, {formula}", marked)


@given(st.integers(1, 9999), st.integers(0, 9999), st.sampled_from(MARKS), st.sampled_from(["", " "]))
def test_marks_between_two_numbers_keep_them_apart(a: int, b: int, marks: tuple[str, str], space: str) -> None:
    for text in (f"{a}{space}{marks[0]}{b:03d}{marks[1]}", f"{marks[0]}{a}{marks[1]}{space}{b:03d}"):
        assert not is_same(f"{a}{b:03d}", text)


@pytest.mark.parametrize("text", ["$5", r"\$5", "5 dollars", "$5$ dollars", r"$\$5$", r"$5\text{ dollars}$"])
def test_money_is_money_in_each_spelling(text: str) -> None:
    assert is_same("5", text) and is_same(r"\$5", text) and is_same("5 cents", text) == (text == "$5")
    assert vote_for(text).identity == vote_for("5").identity


@pytest.mark.parametrize("text", ["-$5", "from $5 to 6", "5$ each", r"\$5 or \$6"])
def test_money_is_no_mark(text: str) -> None:
    assert found(text) == text


def test_a_text_that_is_too_long_keeps_its_marks() -> None:
    text = "for $x$ and " * 60
    assert found(text) == text.strip() and not is_same("x", text)


@given(st.sampled_from(NAMES), st.integers(110, 112), st.integers(110, 112))
def test_a_name_of_the_right_result_may_be_missing(name: str, right: int, offered: int) -> None:
    same = right == offered
    assert is_same(f"{name} = {right}", str(offered)) == is_same(f"{right}={name}", str(offered)) == same
    assert is_same(f"{name} = {right}", f"{name} = {offered}") == same
    assert not is_same(f"{name} = {right}", f"CD = {offered}")


@given(st.permutations(["x", "y", "z"]), st.permutations([1, 2, 3]), st.permutations([1, 2, 3]))
def test_a_point_is_its_coordinates(names: list[str], right: list[int], offered: list[int]) -> None:
    def point(values: list[int]) -> str:
        return f"({', '.join(map(str, values))})"

    def system(values: list[int]) -> str:
        return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))

    named = f"({','.join(names)})="
    same = right == offered
    assert is_same(named + point(right), point(offered)) == same
    assert is_same(named + point(right), system(offered)) == same
    assert is_same(named + point(right), ", ".join(reversed(system(offered).split(", ")))) == same
    assert is_same(system(right), named + point(offered)) == same


@pytest.mark.parametrize("name", ["x+y", "xy", "|z|", "x^2+y^2", r"\frac{x}{y}"])
def test_an_equation_of_coordinates_has_no_value_unless_one_is_asked_for(name: str) -> None:
    for question, same in ((f"Find ${name}$.", True), (f"If ${name}=5$, what follows?", False), ("What is it?", False)):
        assert is_same(f"{name}=5", "5", question) == same, question
        assert is_same(f"{name}=5", f"{name} = 5", question), question


CLOCK = st.tuples(st.integers(0, 24), st.integers(0, 59))


@given(CLOCK, CLOCK, st.integers(1, 12))
def test_no_other_clock_time_is_right(right: tuple[int, int], other: tuple[int, int], factor: int) -> None:
    (hour, minute), multiple = right, (right[0] * factor, right[1] * factor)
    time = f"{hour}:{minute:02d}"
    for hours, minutes in (other, multiple, (minute, hour)):
        for offered in (f"{hours}:{minutes:02d}", f"{hours} : {minutes:02d}", f"{hours}:{minutes}"):
            same = offered.replace(" ", "") == time
            assert is_same(time, offered) == is_same(offered, time) == same
            assert is_same(f"{time} PM", f"{offered} PM") == same
            assert (vote_for(time) == vote_for(offered)) == same
    assert not is_same(time, str(hour)) and not is_same(time, str(hour / (minute or 1)))


@given(*[st.integers(1, 9)] * 4)
def test_ratios_that_are_no_clock_times_are_compared_as_ratios(a: int, b: int, c: int, d: int) -> None:
    same = a * d == b * c
    assert is_same(f"{a}:{b}", f"{c}:{d}") == same
    assert is_same(f"{a}:{b}", rf"\frac{{{c}}}{{{d}}}") == same
    assert is_same(f"{a}:{b}", f"{c * 60}:{d * 60}") == same  # an hour has no minute 60
    assert not is_same(f"{a}:{b}", str(a / b))
