"""Who plays in rehearsals: agents, right as often as is set, and a python on paper that agrees with the real one."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orgthink_pocket.lessons.players import FAILED, OnPaper, helping
from orgthink_pocket.lessons.rehearsals import GOOD_AT
from orgthink_pocket.tasks.arithmetic import LARGEST
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI_SINGLE
from orgthink_pocket.teachers import helpers
from orgthink_pocket.teachers.countdown_review import NO_SOLUTION

from orgthink.engines.engine import Context
from orgthink.grammar.solution import read_proposal
from orgthink.record.episode import Message, Status
from orgthink.tasks.expression import ExpressionError, parse

# Agents


@pytest.mark.parametrize("told", GOOD_AT)
@pytest.mark.parametrize(("kind", "rest"), [("arithmetic", "3 * 17 + 2"), ("countdown", "2 3 9 11 14 = 29")])
def test_agents_are_now_right_and_now_wrong(kind, rest, told):
    right = 0
    for seed in range(100):
        offers = _helped(told, f"sequential {kind} {rest}", seed).split(helpers.SEPARATOR)
        right += offers == ["53"] if kind == "arithmetic" else _right(offers[0])
    assert 0 < right < 100


def test_agents_are_right_more_often_at_what_is_told_of_them():
    def right(told: str) -> int:
        return sum(_helped(told, "sequential arithmetic 3 * 17 + 2", seed) == "53" for seed in range(400))

    assert right("arithmetic") > right("countdown")


@pytest.mark.parametrize("told", GOOD_AT)
def test_only_who_is_good_at_code_writes_programs_queries_and_reviews(told):
    coded = _helped(told, "coder arithmetic 3 * 17")
    reviewed = _helped(told, "reviewer arithmetic 3 * 17 answers 51")
    queried = _helped(told, "finder ledger 3 * silk riga")
    if "code" in told:
        assert "<code> print ( 3 * 17 ) </code>" in coded and "51" in reviewed and "silk riga" in queried
    else:
        assert {coded, reviewed, queried} == {"none"}


@pytest.mark.parametrize(("expression", "value"), [("3 - 3", 0), ("20 * 19 + 19", LARGEST)])
def test_a_wrong_number_is_wrong_and_one_that_models_know(expression, value):
    said = [int(_helped("review", f"sequential arithmetic {expression}", seed)) for seed in range(200)]
    assert all(0 <= number <= LARGEST for number in said)
    assert 0 < said.count(value) < 200


def test_who_finds_no_solution_often_says_so_and_who_offers_more_has_nothing_more():
    said = [
        _helped("review", "sequential countdown 2 3 9 11 14 = 29", seed).split(helpers.SEPARATOR) for seed in range(500)
    ]
    right, wrong = ([offers for offers in said if _right(offers[0]) is found] for found in (True, False))
    assert 0 < wrong.count([NO_SOLUTION]) < len(wrong)
    for some in (right, wrong):
        assert {len(offers) > 1 for offers in some} == {True, False}
    assert not any(_right(offer) for offers in said for offer in offers[1:])
    assert {len(offers) for offers in said} == {1, 2, 3, 4}


@given(st.integers(0, 1 << 30))
def test_of_several_countdowns_an_agent_solves_the_first(seed):
    both = "sequential countdown 29 : 2 3 9 11 14 = 29 ; 18 : 1 2 3 7 9 = 18"
    assert _helped("countdown", both, seed) == _helped("countdown", "sequential countdown 2 3 9 11 14 = 29", seed)


def _helped(told: str, asked: str, seed: int = 0) -> str:
    """What an agent answers whose model the manager is told this of."""
    said = helping(told)(Context((Message("user", asked),)), random.Random(seed))
    return (read_proposal(said, ended=True).answer or said).strip()


def _right(offer: str) -> bool:
    problem = COUNTDOWN_MINI_SINGLE.problem([2, 3, 9, 11, 14], 29)
    return COUNTDOWN_MINI_SINGLE.grade(problem, offer).all_correct


LOW, HIGH = COUNTDOWN_MINI_SINGLE.size.targets


@pytest.mark.parametrize("target", range(LOW, HIGH + 1))
def test_a_target_that_is_made_up_is_answered_too_whatever_it_is(target):
    """From numbers so small that most targets have no solution, nor anything near one."""
    said = {_helped("countdown", f"sequential countdown 1 2 3 4 5 = {target}", seed) for seed in range(40)}
    offers = {offer for answer in said for offer in answer.split(helpers.SEPARATOR)} - {NO_SOLUTION}
    worths = {parse(offer).value for offer in offers}
    assert target in worths and len(worths) > 1, "right ones and wrong ones"


# Python


def _run(code: str):
    async def once():
        return await OnPaper().run(code)

    return asyncio.run(once())


_sums = st.recursive(
    st.integers(0, 399).map(str),
    lambda part: st.tuples(part, st.sampled_from("+-*"), part).map(lambda sides: f"( {' '.join(sides)} )"),
    max_leaves=6,
)


_whole = st.builds(
    lambda one, other, operator, third: f"( {one * other} / {other} ) {operator} {third}",
    *(st.integers(0, 15), st.integers(1, 15), st.sampled_from("+-*"), st.integers(0, 15)),
)
_targets = (_sums | _whole).filter(lambda each: 0 <= eval(each) < 10**8)
_tests = st.one_of(
    st.tuples(_sums | _whole, _sums | _whole).map("{0[0]}== {0[1]}".format),
    (_sums | _whole).map(lambda each: f"{each} == {each}"),
    st.tuples(_targets, st.integers(0, 1)).map(lambda drawn: f"{int(eval(drawn[0])) + drawn[1]}== {drawn[0]}"),
)


@given(st.lists(_sums | _tests, min_size=1, max_size=4))
def test_programs_are_worked_out_as_python_would(expressions):
    result = _run(f" print ( {' , '.join(expressions)}) ")
    assert (result.status, result.text) == (Status.OK, " ".join(str(eval(each)) for each in expressions))


@given(st.integers(1, 20), st.integers(1, 20), st.sampled_from("+-*"), st.integers(1, 20))
def test_a_quotient_is_printed_with_its_point(one, other, operator, third):
    expression = f"( {one * other} / {other} ) {operator} {third}"
    assert _run(f"print({expression})").text == str(eval(expression))


@pytest.mark.parametrize(
    "code",
    ["", "print()", "print(", "print(1", "print(copper)", "print(3 * silk riga)", "1 + 1", "print(1)\nprint(2)",
     "print(1); print(2)", "print(9**9**9)", "print(1/0)", "print(-1)", "print('a'*10**9)", "print(" + "(" * 50_000,
     "print(__import__('pathlib').Path('owned').touch())", "print(open('owned', 'w'))", "exec('1')", "print(0x10)",
     "print(" + "9" * 5_000 + ")", "import os\nprint(1)", "print(1) if True else print(2)", "print(1_0)", "print(1,)",
     "print(1 == 1 == 1)", "print(1 ==)", "print(== 1)", "print(1 = 1)", "print(1 === 1)", "print((1 == 1))",
     "print(1 != 2)", "print(True)", "print(1/0 == 1)", "print(1 == 1/0)", "print(1 == copper)", "print(x := 1 == 1)"],
)  # fmt: skip
def test_other_programs_fail_and_nothing_is_evaluated(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = _run(code)
    assert (result.status, result.text) == (Status.ERROR, FAILED)
    assert not list(tmp_path.iterdir())


_programs = st.text(max_size=40) | st.text("0123456789 ()+-*/=,", max_size=24)


@given(st.text(max_size=60) | _programs.map("print({})".format))
def test_any_program_comes_to_something(code):
    result = _run(code)
    assert result.status is Status.OK or result.text == FAILED
    if result.status is Status.OK:
        for part in code.strip().removeprefix("print").strip()[1:-1].split(","):
            try:
                sides = [parse(side) for side in part.split("==")]
            except ExpressionError:
                pytest.fail(f"{part!r} was worked out")
            assert len(sides) <= 2
