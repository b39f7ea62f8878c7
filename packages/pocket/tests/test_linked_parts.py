"""Parts that need each other or do not: the same operations, texts of the same length, results by a second reading."""

from __future__ import annotations

import re
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orgthink_pocket.tasks.linked_parts import Shape

from orgthink.cli import main
from orgthink.tasks import task_named
from orgthink.util.errors import UserError
from orgthink.util.redaction import redact

sizes = st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(0, 3))


def drawn(name: str, n: int, split: str = "train", seed: int = 0) -> list:
    return list(islice(task_named(name).problems(split, seed), n))


def links(query: str) -> dict[str, set[str]]:
    """Part → parts that it needs."""
    return {line[0]: set(re.findall("[a-z]", line[1:])) for line in query.splitlines()}


def depth(query: str) -> int:
    """Parts of the longest chain."""
    found: dict[str, int] = {}
    for part, needed in links(query).items():
        found[part] = 1 + max((found[one] for one in needed), default=0)
    return max(found.values())


def solved(query: str) -> str:
    """The results by another way: each part a function of the numbers before, all steps at full length."""
    values: dict[str, int] = {}
    for line in query.splitlines():
        name, _, first, *steps = line.split()
        value = values.get(first) if first in values else int(first)
        for operator, operand in zip(steps[::2], steps[1::2], strict=True):
            number = values[operand] if operand in values else int(operand)
            value = {"+": value + number, "*": value * number}[operator]  # type: ignore[operator]
        values[name] = value  # type: ignore[assignment]
    return " ".join(str(value % 10) for value in values.values())


@given(sizes, st.sampled_from(["train", "test"]), st.data())
def test_the_kinds_differ_in_their_links_only(size: tuple[int, int, int], split: str, data: st.DataObject) -> None:
    count, steps, seed = size
    layers = data.draw(st.integers(1, count))
    shape = f"parts={count}&steps={steps}"
    kinds = {"independent": 1, "chained": count, f"mixed?depth={layers}&": layers}
    rows = [drawn(f"parts:{kind}{'' if '?' in kind else '?'}{shape}", 3, split, seed) for kind in kinds]
    for problems in zip(*rows, strict=True):
        assert [depth(problem.query) for problem in problems] == list(kinds.values())
        assert len({len(problem.text) for problem in problems}) == 1
        operators = {re.sub("[^+*\n]", "", problem.query) for problem in problems}
        assert len(operators) == 1, "the same operations"
    for problem in (one for row in rows for one in row):
        task = task_named(problem.task)
        assert problem.data["answer"] == solved(problem.query)
        assert task.grade(problem, problem.data["answer"]).all_correct


def test_each_link_decides_a_result() -> None:
    """Whatever a part starts with, its result differs: nobody can work on a chained part before the one before."""
    for problem in drawn("parts:chained?parts=5&steps=6", 20):
        for line in problem.query.splitlines()[1:]:
            steps = line.partition("= ")[2][1:]
            assert len({solved(f"a = {digit}{steps}") for digit in range(10)}) == 10


def test_what_an_answer_may_look_like() -> None:
    task = task_named("parts:chained")
    (problem,) = drawn("parts:chained", 1)
    right = problem.data["answer"]
    digits = right.split()
    labelled = "\n".join(f"**{name} = {digit}**" for name, digit in zip("abcdef", digits, strict=True))
    listed = "\n".join(f"- {digit}" for digit in digits)
    for good in (right, f" {right}.\n", ", ".join(digits), labelled, listed, "\n".join(digits)):
        assert task.grade(problem, good).all_correct, good
    for bad in (
        "",
        "x",
        right[:-2],
        f"{right} 0",
        f"{right} 10",
        "".join(digits),
        f"a = 2 + 3, {right}",
        right[::-1] + "1",
    ):
        assert not task.grade(problem, bad).correct, bad
    assert task.solutions(problem, labelled)[0].identity == task.solutions(problem, right)[0].identity


def test_no_operations_of_training_are_tested() -> None:
    def operations(split: str) -> set[str]:
        kinds = ("independent", "chained", "mixed")
        found = (p for kind in kinds for p in drawn(f"parts:{kind}?parts=2&steps=1", 300, split))
        return {re.sub("[a-z]", "", p.query) for p in found if not re.search("[+] [a-z]", p.query)}

    assert {one for one in operations("test") if "=  " not in one}.isdisjoint(operations("train"))


@pytest.mark.parametrize(
    ("name", "line"),
    {
        "parts:chaind": "unknown kind of parts 'chaind': did you mean chained?",
        "parts:chained?depth=2": "unknown setting of parts:chained 'depth'",
        "parts:mixed?depth=7": "depth is 7: 6 parts have 1 to 6 layers",
        "parts:independent?parts=27": "there are 1 to 26 of them",
        "parts:independent?steps=many": "it must be a whole number",
        "parts": "`orgthink list parts` lists them",
    }.items(),
)
def test_what_cannot_be_is_refused_in_a_line(name: str, line: str) -> None:
    with pytest.raises(UserError) as refused:
        task_named(name)
    assert line in str(refused.value)


@pytest.mark.parametrize("option", [("--task", "{}"), ("--task={}",)])
def test_settings_in_a_name_are_no_secrets(option: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """The query of a URL is one; it begins with a `?` as well."""
    name = "parts:independent?parts=3+parts:chained?parts=3&steps=7"
    words = [word.format(name) for word in option]
    assert main(["run", *words, "--url", "http://127.0.0.1:9/v1", "--model", "m"]) == 2
    assert "no server at" in capsys.readouterr().err
    assert redact(name) == name
    key = "abcdefgh12345678"
    main(["run", "--task", f"http://host?{key}", "--url", "http://127.0.0.1:9/v1", "--model", "m"])
    assert key not in capsys.readouterr().err


def test_layers_are_as_equal_as_possible() -> None:
    assert [Shape(7, depth=3).layer(part) for part in range(7)] == [0, 0, 0, 1, 1, 2, 2]
