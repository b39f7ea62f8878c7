from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import TASK

from orgthink.tasks import countdown, task_named
from orgthink.tasks.countdown import COUNTDOWN, OPERATORS, Countdown, all_solutions, has_solutions
from orgthink.tasks.expression import parse
from orgthink.tasks.vote import vote

SMALL = task_named(TASK)
PROBLEM = SMALL.problem([1, 2, 3, 7, 9], 18)
GOOD = ["7 + 9 + 2", "2 * 7 + 3 + 1", "(3 - 1) * 9", "9 * (7 - 3 - 2)"]


def _read(table) -> dict[int, set[tuple]]:
    """Value → what it can be made of: (subset, operator counts)."""
    found = defaultdict(set)
    for mask, values in table.items():
        for value, counts in values.items():
            found[value] |= {(mask, tuple(count >> 8 * i & 255 for i in range(4))) for count in counts}
    return dict(found)


def _brute_force(numbers: list[int]) -> dict[int, set[tuple]]:
    """The same by combining any two of the expressions at hand, in every order."""
    found = defaultdict(set)

    def explore(state: tuple) -> None:
        for value, mask, counts in state:
            found[value].add((mask, counts))
        for i, j in ((i, j) for i in range(len(state)) for j in range(len(state)) if i != j):
            (a, mask_a, counts_a), (b, mask_b, counts_b) = state[i], state[j]
            rest = tuple(state[k] for k in range(len(state)) if k not in (i, j))
            for at, operator in enumerate(OPERATORS):
                if operator in "*/" and 1 in ((b,) if operator == "/" else (a, b)):
                    continue
                if (operator == "-" and a <= b) or (operator == "/" and a % b):
                    continue
                value = {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[operator]
                counts = tuple(x + y + (k == at) for k, (x, y) in enumerate(zip(counts_a, counts_b, strict=True)))
                explore((*rest, (value, mask_a | mask_b, counts)))

    explore(tuple((number, 1 << i, (0, 0, 0, 0)) for i, number in enumerate(numbers)))
    return dict(found)


@pytest.mark.parametrize("seed", range(6))
def test_all_solutions_are_all(seed):
    numbers = random.Random(seed).sample(range(1, 13), 4 if seed else 3)
    assert _read(all_solutions(numbers, len(numbers))) == _brute_force(numbers)


def test_all_solutions_of_few_numbers_only():
    table = all_solutions([2, 3, 7, 9], 3)
    assert max(mask.bit_count() for mask in table) == 3
    full = _read(all_solutions([2, 3, 7, 9], 4))
    few = {value: {s for s in found if s[0].bit_count() <= 3} for value, found in full.items()}
    assert _read(table) == {value: found for value, found in few.items() if found}


@pytest.mark.parametrize(("task", "n"), [(SMALL, 300), (COUNTDOWN, 1)])
@pytest.mark.parametrize("split", ["train", "test"])
def test_problems_have_enough_solutions(task, n, split):
    for problem in islice(task.problems(split, 1), n):
        numbers, target = problem.data["numbers"], problem.data["target"]
        few, low, high = task.size.used[0], *task.size.targets
        table = _read(all_solutions(numbers, 3 if task is SMALL else 6))
        assert sum(mask.bit_count() >= few for mask, _ in table[target]) >= problem.required == 4
        assert low <= target <= high and target not in numbers
        assert len(set(numbers)) == task.size.given and all(1 <= n <= task.size.largest for n in numbers)


@pytest.mark.parametrize("task", [SMALL, COUNTDOWN])
def test_held_out_targets(task):
    n = 300 if task is SMALL else 2
    targets = {s: {p.data["target"] for p in islice(task.problems(s, 3), n)} for s in ("train", "test")}
    assert targets["test"] <= task.test_targets and not targets["train"] & task.test_targets
    assert len(task.test_targets) == task.size.held_out


@pytest.mark.parametrize("split", ["train", "test"])
def test_problems_are_the_same_for_the_same_seed(split):
    def draw(seed: int):
        return list(islice(SMALL.problems(split, seed), 20))

    assert draw(5) == draw(5) != draw(6)


@pytest.mark.parametrize(
    ("offered", "correct"),
    [
        (GOOD, 4),
        ([g + " = 18" for g in GOOD], 4),
        (["1 + 17"], 0),  # 17 is not given
        (["9 + 9"], 0),  # used twice
        (["9 * 2"], 0),  # two numbers only
        (["7 + 9 + 1"], 0),  # another value
        (["7 + 9 + 2 = 17 + 1"], 1),
        (["7 + 9 + 2 = 17"], 0),
        (["7 + 9 + 2 = 16 + 2 = 18"], 1),
        (["7 + 9 + 2 = 18 = 17"], 0),
        (["1.7 + 9 + 2 + 7"], 0),  # not the first of a list
        (["2**3 + 3**1 + 7"], 0),
        (["7 + 9 + 2 + x"], 0),
        (["7 + 9 + 2 - a"], 0),
        (["7 + 9 + 2 + seven"], 0),
        (["7 + 9 + 2 - seven"], 0),
        (["7 + 9 + 2 ="], 0),
        (["7 + 9 + 2", "2 + 9 + 7", "(9 + 2) + 7", "2 + (7 + 9)"], 1),
        ([*GOOD[:3], "nonsense"], 3),
        ([*GOOD[:2], "nonsense", *GOOD[2:]], 4),
        (["1 + 1", *GOOD], 4),
        ([*["1 + 1"] * 12, *GOOD], 4),
        ([*["1 + 1"] * 13, *GOOD], 3),  # the seventeenth expression is not graded
        (["nonsense"] * 50 + GOOD, 4),
        (["7 + 9 + 2"] * 4 + GOOD, 4),
        (["7 + 9 + 2 + 3 - 1 - 2"], 0),  # 2 twice
        (["7 + 9 + (3 - 1)"], 1),
        (["(7 / 2) * (9 / 7)"], 0),
        ([r"\boxed{\frac{9}{2} \cdot (1 + 3)}"], 1),
        ([r"\boxed{\frac{\text{9}}{\frac{2}{1 + 3}}}"], 1),
        ([r"\boxed{\frac{9}{2} \cdot 3}"], 0),
        (["9 / 2 * (1 + 3)"], 1),  # fractions on the way are fine: the arithmetic is exact
        (["−7 + 9"], 0),
        (["９ + 7 + 2"], 0),
        ([], 0),
    ],
)
def test_grade(offered, correct):
    grade = SMALL.grade(PROBLEM, "\n".join(offered))
    assert (grade.correct, grade.required) == (correct, 4)


@pytest.mark.parametrize("separator", ["\n", ";", ",", " ;\n", "\n\n", ", "])
def test_separators(separator):
    assert SMALL.grade(PROBLEM, separator.join(GOOD)).all_correct


@settings(deadline=None)
@given(st.text(alphabet="123479+-*/() =;,\n×", max_size=60) | st.text(max_size=60))
def test_the_grader_is_total(answer):
    grade = SMALL.grade(PROBLEM, answer)
    assert 0 <= grade.correct <= 4 and len(SMALL.solutions(PROBLEM, answer)) >= grade.correct


NUMBERED = list(enumerate(GOOD, 1))
LATEX = [good.replace("*", r"\times") for good in GOOD]
FORMS = {
    "numbers": [f"{i}. {good}" for i, good in NUMBERED],
    "brackets": [f"({i}) {good}" for i, good in NUMBERED],
    "half brackets": [f"{i}) {good}" for i, good in NUMBERED],
    "letters": [f"{letter}) {good}" for letter, good in zip("abcd", GOOD, strict=True)],
    "dashes": [f"- {good}" for good in GOOD],
    "stars": [f"* {good}" for good in GOOD],
    "code": [f"`{good}`" for good in GOOD],
    "a fence": ["```python", *GOOD, "```"],
    "labels": [f"Solution {i}: {good}" for i, good in NUMBERED],
    "labels of their own": [text for i, good in NUMBERED for text in (f"### Solution {i}", good)],
    "bold labels": [f"**Solution {i}:** {good} = 18" for i, good in NUMBERED],
    "bold": [f"{i}. **{good}**" for i, good in NUMBERED],
    "the value first": [f"18 = {good}" for good in GOOD],
    "LaTeX": [rf"{i}. \({good} = 18\)" for i, good in enumerate(LATEX, 1)],
    "dollars": [f"${good}$" for good in LATEX],
    "boxes": [rf"\boxed{{{good}}}" for good in LATEX],
    "lines of LaTeX": [r"\begin{align} " + r" \\ ".join(f"{good} &= 18" for good in LATEX) + r" \end{align}"],
    "crosses": [good.replace("*", "x") for good in GOOD],
    "square brackets": [good.replace("(", "[").replace(")", "]") for good in GOOD],
    "JSON": [json.dumps(GOOD)],
    "JSON on lines": [json.dumps({"solutions": GOOD}, indent=2)],
    "JSON by name": [json.dumps({str(i): good for i, good in NUMBERED})],
    "a heading": ["Here are 4 different solutions, which use 3 to 4 numbers:", *GOOD],
    "a table": ["| # | solution |", "|---|---|", *(f"| {i} | {good} |" for i, good in NUMBERED)],
    "remarks": [f"{good} = 18 (uses {i + 2} numbers) ✓" for i, good in NUMBERED],
    "remarks with commas": [f"{i}. {good} (uses 7, 9 and 2)" for i, good in NUMBERED],
    "words behind": [f"- {good} = 18 which is the target" for good in GOOD],
    "arrows": [f"{good} → 18" for good in GOOD],
    "braces": [f"{{{good}}} = 18" for good in LATEX],
    "quotes of Markdown": [f"> {i}. `{good}`" for i, good in NUMBERED],
    "one in a list": [f'{{"{i}": "{good}"}}' for i, good in NUMBERED],
    "wrong ones first": ["1 + 2 + 3", GOOD[0], "7 + 9 +", "that is 17; no:", *GOOD],
}


@pytest.mark.parametrize("lines", FORMS.values(), ids=FORMS)
def test_every_way_of_writing_four_solutions_is_read(lines):
    answer = "\n".join(lines)
    assert SMALL.grade(PROBLEM, answer).all_correct
    assert SMALL.grade(PROBLEM, vote(PROBLEM, [answer]) or "").correct >= 3, "a vote gives a place to a wrong one"


def test_votes_for_one_solution_in_many_spellings_are_for_one():
    for lines in FORMS.values():
        assert vote(PROBLEM, ["1 + 1", "\n".join(lines[-3:]), GOOD[3]]) != "1 + 1"
    a, b = GOOD[:2]
    assert (
        vote(PROBLEM, [f"Here they are:\n1. {a}", f"Here they are:\n- `{b}`", f"Here they are:\n{b} = 18"])
        == f"{b}\n{a}"
    )


def test_a_task_may_ask_for_the_first_offers_only():
    strict = task_named("countdown#strict")
    problem = COUNTDOWN.problem([1, 2, 3, 7, 9, 25], 18)
    for answer, found in (("\n".join(GOOD), 4), ("\n".join(["1 + 1", *GOOD]), 3)):
        assert (strict.grade(problem, answer).correct, COUNTDOWN.grade(problem, answer).correct) == (found, 4)


@given(st.permutations(GOOD), st.lists(st.sampled_from([*GOOD, "1 + 1", "2 * 7 + 4", "x"]), max_size=30))
def test_offering_more_never_costs_and_guessing_ends(good, more):
    """What follows the four right ones leaves the grade alone; what comes before them costs once it fills the limit."""
    assert SMALL.grade(PROBLEM, ";".join([*good, *more])).correct == 4
    graded = [text for text in [*more, *good] if text != "x"][: SMALL.size.offered]
    found = {parse(text).key for text in graded if text in GOOD}
    assert SMALL.grade(PROBLEM, ";".join([*more, *good])).correct == len(found)


def test_only_so_many_lines_of_an_answer_are_read(monkeypatch):
    lines, read = ["", *["no"] * (countdown.MOST_PIECES - 1), "7 + 9 + 2"], list[str]()
    reading = countdown.read_expression
    monkeypatch.setattr(countdown, "read_expression", lambda piece: read.append(piece) or reading(piece))
    assert SMALL.grade(PROBLEM, "\n".join(lines)).correct == 1 and len(read) == countdown.MOST_PIECES
    assert SMALL.grade(PROBLEM, "\n".join(["no", *lines] * 9)).correct == 0 and len(read) == 2 * countdown.MOST_PIECES


def test_vote_takes_the_most_frequent_and_then_the_first_offered():
    a, b, c, d = GOOD
    assert vote(PROBLEM, [f"{a};{b}", f"{c};{b}"]).split("\n") == [b, a, c]
    assert vote(PROBLEM, [f"{a};{b};{c}", f"{d};9 + 7 + 2"]).split("\n") == [a, b, c, d]
    assert vote(PROBLEM, [f"{a};{b};2 + 7 + 9"]).split("\n") == [a, b]
    assert vote(PROBLEM, ["1 + 1", "2 + 2;1 + 1", f"3 + 3;{a};{b};{c}"]).split("\n") == ["1 + 1", "2 + 2", "3 + 3", a]


def test_vote_keeps_a_wrong_expression_apart_from_a_right_one_with_the_same_parts():
    wrong, right = "7 + 9 * 2", "7 * 2 + 9"
    assert parse(wrong).key == parse(right).key and parse(wrong).value != parse(right).value
    assert vote(PROBLEM, [wrong, right, "2 * 7 + 9"]).split("\n") == [right, wrong]


def test_vote_counts_an_answer_once_for_each_solution():
    a, b = GOOD[:2]
    assert vote(PROBLEM, [f"{a};{a};2 + 7 + 9", b, b]).split("\n") == [b, a]


def test_vote_of_nothing():
    assert vote(PROBLEM, []) is None and vote(PROBLEM, ["", " ; "]) is None


def test_test_problems_are_spread_evenly_over_the_held_out_targets():
    problems = list(islice(SMALL.problems("test", 0), 4 * len(SMALL.test_targets)))
    drawn = Counter(problem.data["target"] for problem in problems)
    assert drawn == dict.fromkeys(SMALL.test_targets, 4)


def test_the_papers_test_set_is_100_targets_with_4_sets_each():
    problems = list(islice(COUNTDOWN.problems("test", 0), 400))
    assert Counter(problem.data["target"] for problem in problems) == dict.fromkeys(COUNTDOWN.test_targets, 4)
    assert len({problem.id for problem in problems}) == 400
    again = list(islice(COUNTDOWN.problems("test", 7), 400))
    assert again != problems and {problem.id for problem in again} == {problem.id for problem in problems}


def test_the_papers_training_set_is_900_targets_with_25_sets_each():
    assert COUNTDOWN.size.sets == (25, 4)
    train = Countdown("few", replace(COUNTDOWN.size, targets=(990, 1000), held_out=9, sets=(25, 4)))
    problems = list(islice(train.problems("train", 0), 51))
    assert all(problems[i].data["target"] != problems[i + 1].data["target"] for i in range(0, 50, 2))
    assert len({problem.id for problem in problems[:50]}) == 50 and problems[50] in problems[:50]


@pytest.mark.parametrize("seed", range(4))
def test_solutions_that_are_found_are_there(seed):
    """What `has_solutions` finds is in the table of all solutions, and it finds all of up to four numbers."""
    rng = random.Random(seed)
    numbers, few = rng.sample(range(1, 13), 4), 3
    solutions = {
        target: sum(mask.bit_count() >= few for mask, _ in found)
        for target, found in _read(all_solutions(numbers, 4)).items()
    }
    for target in range(1, 200):
        there = solutions.get(target, 0)
        assert has_solutions(numbers, target, there) or not there
        assert not has_solutions(numbers, target, there + 1)
