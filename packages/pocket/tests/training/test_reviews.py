"""What verifiers and correctors imitate: a slip is wrong, a whole look finds it, and a partial look if it sees it."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orgthink_pocket.style import VERDICTS as TERSE
from orgthink_pocket.tasks.arithmetic import ARITHMETIC_MINI
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI_SINGLE
from orgthink_pocket.teachers import arithmetic_review as arithmetic
from orgthink_pocket.teachers import countdown_review as countdown
from orgthink_pocket.teachers.arithmetic import Operation, steps
from orgthink_pocket.teachers.countdown import OPERATORS, first_hit, scan

from orgthink.grammar.solution import read_proposal
from orgthink.grammar.verdict import Verdict, read_report
from orgthink.tasks.expression import parse

SEEDS = st.integers(0, 1 << 30)


def _drawn(task, seed: int):
    """A problem that is easily drawn, and a generator for what is done with it."""
    return next(task.problems("train", seed)), random.Random(seed)


def _grade(problem, text: str) -> bool:
    task = ARITHMETIC_MINI if problem.task == ARITHMETIC_MINI.name else COUNTDOWN_MINI_SINGLE
    answer = read_proposal(text, ended=True).answer
    assert answer is not None, text
    return task.grade(problem, answer).all_correct


def _verdict(report: str) -> Verdict:
    return read_report(report, TERSE).verdict


# Arithmetic


@settings(deadline=None)
@given(SEEDS)
def test_arithmetic_is_worked_out_right_and_slips_are_wrong(seed):
    problem, rng = _drawn(ARITHMETIC_MINI, seed)
    right, wrong = arithmetic.worked(problem.data["expression"]), arithmetic.slipped(problem.data["expression"], rng)
    assert _grade(problem, right.text) and not _grade(problem, wrong.text)
    integers = [int(token) for token in wrong.text.split() if token.lstrip("-").isdigit()]
    assert all(0 <= integer <= 399 for integer in integers)
    assert len(wrong.steps) == len(right.steps)


@settings(deadline=None)
@given(SEEDS)
def test_there_is_one_slip_and_the_steps_after_it_follow_from_it(seed):
    problem, rng = _drawn(ARITHMETIC_MINI, seed)
    right = arithmetic.worked(problem.data["expression"])
    wrong = arithmetic.slipped(problem.data["expression"], rng)
    first = next((i for i, pair in enumerate(zip(right.steps, wrong.steps, strict=True)) if pair[0] != pair[1]), None)
    if first is None:
        assert wrong.answer != wrong.steps[-1].value
        return
    assert wrong.answer == wrong.steps[-1].value
    slip, step = wrong.steps[first], right.steps[first]
    assert slip.terms == step.terms
    changed = [pair for pair in zip(slip.rest, step.rest, strict=True) if pair[0] != pair[1]]
    assert changed == [(str(slip.value), str(step.value))] if slip.value != step.value else len(changed) == 1
    for before, after in zip(wrong.steps[first:], wrong.steps[first + 1 :], strict=False):
        assert steps(before.rest)[0] == after


@settings(deadline=None)
@given(SEEDS)
def test_a_whole_look_at_arithmetic_is_right_and_a_shallow_one_finds_nothing_deeper(seed):
    problem, rng = _drawn(ARITHMETIC_MINI, seed)
    expression = problem.data["expression"]
    right, wrong = arithmetic.worked(expression), arithmetic.slipped(expression, rng)
    assert _verdict(arithmetic.report(expression, right)) is Verdict.CORRECT
    assert _verdict(arithmetic.report(expression, wrong)) is Verdict.WRONG
    pairs = list(zip(right.steps, wrong.steps, strict=True))
    seen = [(a.terms, a.value) == (b.terms, b.value) for a, b in pairs]
    for depth in range(len(pairs) + 1):
        assert _verdict(arithmetic.report(expression, right, depth)) is Verdict.CORRECT
        found = _verdict(arithmetic.report(expression, wrong, depth))
        assert found is (Verdict.CORRECT if all(seen[:depth]) else Verdict.WRONG)


@settings(deadline=None)
@given(SEEDS)
def test_a_finding_names_the_first_operation_that_went_wrong_with_its_right_value(seed):
    problem, rng = _drawn(ARITHMETIC_MINI, seed)
    expression = problem.data["expression"]
    right, wrong = arithmetic.worked(expression), arithmetic.slipped(expression, rng)
    findings = read_report(arithmetic.report(expression, wrong), TERSE).findings
    pairs = zip(right.steps, wrong.steps, strict=True)
    bad = next((a for a, b in pairs if (a.terms, a.value) != (b.terms, b.value)), None)
    expected = str(right.answer) if bad is None else f"{' '.join(bad.terms)} = {bad.value}"
    assert findings == f"finding {expected}"


@settings(deadline=None)
@given(SEEDS)
def test_false_alarms_about_arithmetic_accuse_a_right_step_of_a_wrong_value(seed):
    problem, rng = _drawn(ARITHMETIC_MINI, seed)
    expression = problem.data["expression"]
    values = {" ".join(step.terms): str(step.value) for step in arithmetic.worked(expression).steps}
    twin = random.Random()
    twin.setstate(rng.getstate())
    findings, believed = arithmetic.false_finding(expression, rng)
    report = read_report(arithmetic.false_report(expression, twin), TERSE)
    assert (report.verdict, report.findings) == (Verdict.WRONG, findings)
    operation, _, value = findings.removeprefix("finding ").partition(" = ")
    assert values[operation] != value, "the operation is one of the solution, and its value another"
    assert value in believed.text.split() and believed.answer == believed.steps[-1].value
    assert believed != arithmetic.worked(expression)


def test_a_report_on_arithmetic():
    expression = "( 3 + 4 ) * 5 - 6"
    right = arithmetic.worked(expression)
    seven, times, less = right.steps
    slip = Operation(times.terms, 36, ("36", "-", "6"))
    wrong = arithmetic.Worked((seven, slip, Operation(("36", "-", "6"), 30, ("30",))), 30)
    start = "3 + 4 = 7 7 ok ; 7 * 5 - 6"
    said = f"{start} ; 7 * 5 = 35 36 bad </think> finding 7 * 5 = 35 correctness : wrong"
    assert arithmetic.report(expression, wrong) == arithmetic.report(expression, wrong, 2) == said
    assert arithmetic.report(expression, wrong, 1) == f"{start} </think> finding none correctness : correct"
    assert arithmetic.report(expression, wrong, 0) == "</think> finding none correctness : correct"
    whole = f"{start} ; 7 * 5 = 35 35 ok ; 35 - 6 ; 35 - 6 = 29 29 ok ; 29 29 ok"
    assert arithmetic.report(expression, right) == f"{whole} </think> finding none correctness : correct"
    other = f"{whole.removesuffix('29 ok')}28 bad </think> finding 29 correctness : wrong"
    assert arithmetic.report(expression, arithmetic.Worked((seven, times, less), 28)) == other


@settings(deadline=None)
@given(SEEDS)
def test_who_answers_too_soon_stops_after_a_right_step_and_a_whole_look_names_the_next(seed):
    problem, rng = _drawn(ARITHMETIC_MINI, seed)
    expression = problem.data["expression"]
    right, soon = arithmetic.worked(expression), arithmetic.hasty(expression, rng)
    done = len(soon.steps)
    assert 1 <= done < len(right.steps) and soon.steps == right.steps[:done]
    assert soon.answer == soon.steps[-1].value
    missing = right.steps[done]
    report = read_report(arithmetic.report(expression, soon), TERSE)
    finding = f"finding {' '.join(missing.terms)} = {missing.value}"
    assert (report.verdict, report.findings) == (Verdict.WRONG, finding)
    assert _verdict(arithmetic.report(expression, soon, done)) is Verdict.CORRECT
    assert _verdict(arithmetic.report(expression, soon, done + 1)) is Verdict.WRONG


def test_a_line_copied_wrongly_shows_as_an_operation_that_is_not_there():
    expression = "( 3 + 4 ) * 5 - 6"
    seven, *_ = arithmetic.worked(expression).steps
    copied = Operation(seven.terms, 7, ("7", "+", "5", "-", "6"))
    wrong = arithmetic.Worked((copied, *steps(copied.rest)), 6)
    assert "; 7 * 5 = 35 none bad </think> finding 7 * 5 = 35 " in arithmetic.report(expression, wrong)


# Countdown


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_solver_finds_the_first_solution_in_the_order_of_its_operators(split):
    rng = random.Random(0)
    for problem in islice(COUNTDOWN_MINI_SINGLE.problems(split, 5), 300):
        order = rng.sample(OPERATORS, len(OPERATORS))
        numbers, target = problem.data["numbers"], problem.data["target"]
        text, answer = countdown.solved(numbers, target, order)
        assert _grade(problem, text) and read_proposal(text, ended=True).answer == answer
        whole = scan(numbers, target, order)
        assert answer == whole.hits[0]
        thinking = text.partition(" </think>")[0]
        assert whole.text.startswith(thinking) and thinking.endswith(f" ! {answer}") and thinking.count("!") == 1


def test_without_a_solution_the_whole_scan_is_written_and_the_answer_is_none():
    lines, hit = first_hit([1, 2, 3], 60, "+*")
    assert (lines, hit) == (scan([1, 2, 3], 60, "+*").text, None)
    assert countdown.solved([1, 2, 3], 60, "+*") == (f"{lines} </think> <ANSWER> none </ANSWER>", "none")


@settings(deadline=None)
@given(SEEDS)
def test_a_near_miss_is_wrong_and_a_whole_look_at_it_finds_it(seed):
    problem, rng = _drawn(COUNTDOWN_MINI_SINGLE, seed)
    numbers, target = problem.data["numbers"], problem.data["target"]
    answer = countdown.near_miss(numbers, target, rng)
    assert not _grade(problem, countdown.answered(answer))
    report = read_report(countdown.report(numbers, target, answer), TERSE)
    assert report.verdict is Verdict.WRONG
    if answer == countdown.NO_SOLUTION:
        assert report.findings == "finding none"
        return
    expression = parse(answer)
    assert abs(expression.value - target) <= countdown.AWAY
    used = [str(number) for number in expression.numbers]
    strange = sorted(used) != sorted(set(used) & set(map(str, numbers)))
    finding = report.findings.removeprefix("finding ")
    assert finding in used if strange else finding.endswith(f" = {expression.value}") and expression.value != target
    by_numbers = _verdict(countdown.report(numbers, target, answer, values=False))
    by_value = _verdict(countdown.report(numbers, target, answer, given=False))
    assert by_numbers is (Verdict.WRONG if strange else Verdict.CORRECT)
    assert by_value is (Verdict.CORRECT if expression.value == target else Verdict.WRONG)
    assert _verdict(countdown.report(numbers, target, answer, values=False, given=False)) is Verdict.CORRECT


@settings(deadline=None)
@given(SEEDS, st.booleans(), st.booleans())
def test_a_look_at_a_right_answer_finds_nothing_and_a_false_alarm_accuses_one_of_its_numbers(seed, values, given):
    problem, rng = _drawn(COUNTDOWN_MINI_SINGLE, seed)
    numbers, target = problem.data["numbers"], problem.data["target"]
    _, answer = countdown.solved(numbers, target, rng.sample(OPERATORS, len(OPERATORS)))
    report = read_report(countdown.report(numbers, target, answer, values=values, given=given), TERSE)
    assert (report.verdict, report.findings) == (Verdict.CORRECT, "finding none")
    alarm = read_report(countdown.false_report(answer, rng), TERSE)
    assert alarm.verdict is Verdict.WRONG and alarm.findings.removeprefix("finding ") in answer.split()


def test_reports_on_countdown():
    def report(answer, **looks):
        return countdown.report([2, 3, 9, 11, 14], 29, answer, **looks)

    fine, end = "2 ok 9 ok 11 ok", "</think> finding none correctness : correct"
    assert report("( 2 * 9 ) + 11") == f"{fine} ; 2 * 9 = 18 ; 18 + 11 = 29 29 ok {end}"
    assert report("14 + ( 3 + 11 )", given=False) == (
        "3 + 11 = 14 ; 14 + 14 = 28 29 bad </think> finding 14 + 14 = 28 correctness : wrong"
    )
    assert report("( 2 * 9 ) + 9") == "2 ok 9 ok 9 bad </think> finding 9 correctness : wrong"
    assert report("( 2 * 8 ) + 13") == "2 ok 8 bad </think> finding 8 correctness : wrong"
    assert report("none", values=False, given=False) == "none bad </think> finding none correctness : wrong"
    assert report("( 2 * 9 ) + 11", values=False, given=False) == end
    with pytest.raises(ValueError, match="not an expression of three numbers with values from 1 to 399: "):
        report("( 2 / 9 ) + 11")
