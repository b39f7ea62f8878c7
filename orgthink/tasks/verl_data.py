"""Problems of the parquet files that verl reads (columns of verl 0.9.1).

Every field of a problem has a column, so rows that `orgthink export problems` wrote become the same problems again,
from the file or from what verl passes to an agent loop, each of its own task. Rows of verl's own data
sets with a short mathematical answer become problems of `math`. A file is one split: verl's scripts write one file for
training and one for testing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from orgthink.record.episode import Grade, Message, Problem
from orgthink.record.episode_json import MOST_REQUIRED
from orgthink.tasks import TASKS
from orgthink.tasks.math import MATH
from orgthink.tasks.task import FileTask, Solution, Split, Task, require_shallow
from orgthink.util.errors import UserError, explained
from orgthink.util.files import write_whole
from orgthink.util.references import references
from orgthink.util.settings import plain
from orgthink.util.tabular import parquet_bytes

T = TypeVar("T")

OURS = "orgthink/"
"""Prefix of the task's name in `data_source`."""

MATHEMATICAL = (
    "openai/gsm8k",
    "lighteval/MATH",
    "DigitalLearningGmbH/MATH-lighteval",
    "HuggingFaceH4/MATH-500",
    "math",
    "math_dapo",
    "math_dapo_reasoning",
    "numina_aops_forum",
    "numina_synthetic_math",
    "numina_amc_aime",
    "numina_synthetic_amc",
    "numina_cn_k12",
    "numina_olympiads",
)
"""Data sources that verl grades by a short mathematical answer (`utils/reward_score`), besides `aime…`."""

INSTRUCTIONS = (
    ("", ' Let\'s think step by step and output the final answer after "####".'),
    ("", " Let's think step by step and output the final answer within \\boxed{}."),
    (
        "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
        "$Answer (without quotes) where $Answer is the answer to the problem.\n\n",
        '\n\nRemember to put your answer on its own line after "Answer:".',
    ),
)
"""Instructions around a question in GSM8K, MATH and DAPO. They are removed: each organization has its own prompt."""


class VerlData(FileTask):
    """`verl:FILE`. Each problem is graded by its own task."""

    name = "verl"
    columns = ("data_source", "prompt", "reward_model", "extra_info")
    tasks: Mapping[str, Task] = TASKS
    """Tasks that its problems may belong to, by name."""

    def read(self, row: Mapping[str, Any], place: str) -> Problem:
        problem = problem_of(row, place)
        if next(references(problem.task), None) is not None:  # to look it up would run that code
            raise UserError(f"{place}: its data_source names code, {problem.task}: name what is installed")
        task = self.tasks.get(problem.task)
        if not isinstance(task, Task):  # it may be a family or a kind of grader
            raise UserError(f"{place}: orgthink has no task {problem.task} to grade it")
        if not task.fits(problem.data):
            raise UserError(f"{place}: its ground truth is none of {problem.task}")
        if problem.id.encode(errors="replace").decode() != problem.id:
            raise UserError(f"{place}: its id has half of a surrogate pair, which no file can hold")
        if not 1 <= problem.required <= MOST_REQUIRED:
            raise UserError(f"{place}: it asks for {problem.required} solutions: 1 to {MOST_REQUIRED} can be asked for")
        return problem

    def grade(self, problem: Problem, answer: str) -> Grade:
        return self.tasks[problem.task].grade(problem, answer)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return self.tasks[problem.task].solutions(problem, answer)


def row_of(problem: Problem, split: Split, index: int) -> dict[str, Any]:
    """The row of problem number `index` of a file. UserError if its data are not JSON values."""
    with explained(f"problem {problem.id}: its data are not JSON values", TypeError, ValueError, RecursionError):
        truth = json.dumps(problem.data, allow_nan=False)
    if json.loads(truth) != problem.data:
        raise UserError(f"problem {problem.id}: its data are not JSON values: use lists, and texts as keys")
    return {
        "data_source": OURS + problem.task,
        "prompt": [plain(turn) for turn in (*problem.history, Message("user", problem.text))],
        "ability": problem.task,
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {
            "split": split,
            "index": index,
            "id": problem.id,
            "required": problem.required,
            "instruction": problem.instruction,
            "answer_form": problem.answer_form,
            "history": len(problem.history),
        },
    }


def write(problems: Sequence[Problem], split: Split, file: Path) -> None:
    """Write problems as a parquet file for verl. UserError if there are not, or if one cannot be written."""
    if not problems:
        raise UserError(f"no problems to write to {file}")
    write_whole(file, parquet_bytes([row_of(problem, split, index) for index, problem in enumerate(problems)], file))


def problem_of(row: Mapping[str, Any], place: str) -> Problem:
    """The problem of a row: of ours, the same one; of a data set of mathematics, one of the task `math`.

    UserError that begins with `place` if the row is of other data, lacks a field or nests too deep.
    """
    source = _typed_value(row, "data_source", str, place)
    truth = _typed_value(row, "reward_model", dict, place).get("ground_truth")
    if isinstance(truth, bool) or not isinstance(truth, str | int | float):
        raise UserError(f"{place}: its reward_model has no ground_truth")
    extra = row.get("extra_info")
    extra = extra if isinstance(extra, Mapping) else {}
    if not source.startswith(OURS):
        return MATH.problem(*_mathematical(row, source, str(truth), extra, place))
    with explained(f"{place}: its ground truth is not JSON", ValueError, RecursionError):
        data = json.loads(str(truth))
    *history, question = _turns(row, _typed_value({"history": 0, **extra}, "history", int, place), place)
    problem = Problem(
        id=_typed_value(extra, "id", str, place),
        task=source.removeprefix(OURS),
        text=question.content,
        required=_typed_value(extra, "required", int, place),
        data=_typed_value({"data": data}, "data", dict, place),
        instruction=_typed_value({"instruction": "", **extra}, "instruction", str, place),
        history=tuple(history),
        answer_form=_typed_value({"answer_form": "", **extra}, "answer_form", str, place),
    )
    return require_shallow(problem, place)


def _typed_value(row: Mapping[str, Any], name: str, kind: type[T], place: str) -> T:
    """The value of a field; UserError if it has another type."""
    value = row.get(name)
    if isinstance(value, kind) and not isinstance(value, bool):
        return value
    raise UserError(f"{place}: its {name} is {'missing' if value is None else f'no {kind.__name__}'}")


def _turns(row: Mapping[str, Any], before: int, place: str) -> list[Message]:
    """The turns of a prompt: so many `before` the question, and the question. UserError if there are others."""
    found = [turn if isinstance(turn, Mapping) else {} for turn in _typed_value(row, "prompt", list, place)]
    if len(found) != before + 1 or found[-1].get("role") != "user":
        wanted = (
            f"one turn of the user after the {before} that its extra_info says" if before else "one turn of the user"
        )
        raise UserError(f"{place}: its prompt is not {wanted}: leave out what others say")
    return [Message(*(_typed_value(turn, name, str, place) for name in ("role", "content"))) for turn in found]


def _mathematical(
    row: Mapping[str, Any], source: str, truth: str, extra: Mapping[str, Any], place: str
) -> tuple[str, str]:
    """Question and answer. The question has no instructions around it."""
    if source not in MATHEMATICAL and not source.startswith("aime"):
        raise UserError(f"{place}: {source} has no short mathematical answers, and orgthink no task for it")
    alone = extra.get("question") or extra.get("raw_problem")
    question = alone if isinstance(alone, str) else _turns(row, 0, place)[0].content
    for before, behind in INSTRUCTIONS:
        if question.startswith(before) and question.endswith(behind):
            question = question.removeprefix(before).removesuffix(behind)
    question, answer = question.strip(), truth.strip()
    if not question or not answer:
        raise UserError(f"{place}: it has no {'answer' if question else 'question'}")
    return question, answer
