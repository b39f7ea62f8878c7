"""Problems as rows of the parquet files that verl reads, and the other way round (columns of verl 0.9.1).

In a row of ours every field of the problem stands in one of verl's columns, so the problem can be rebuilt exactly, from
the file or from what verl hands to an agent loop. Of verl's own data sets, those with a short mathematical answer
become problems of `math`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orgthink.episode import Message, Problem
from orgthink.errors import UserError
from orgthink.store import typed, write_whole
from orgthink.tasks.math import MATH
from orgthink.tasks.task import Split

OURS = "orgthink/"
"""Before the name of the task in `data_source`."""

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
"""Data sources that verl grades by a short mathematical answer (`utils/reward_score`), beside those named `aime…`."""

ASKED = (
    ' Let\'s think step by step and output the final answer after "####".',
    " Let's think step by step and output the final answer within \\boxed{}.",
)
"""What verl's scripts for GSM8K and MATH write behind a question. Each organization asks in its own way."""


@dataclass(frozen=True, slots=True)
class _Truth:
    ground_truth: str | int | float
    """The answer; JSON of the problem's data in rows of ours."""


@dataclass(frozen=True, slots=True)
class _Row:
    """What is read of a row."""

    data_source: str
    """Which data set."""
    prompt: list[Message]
    """The question."""
    reward_model: _Truth
    """How it is graded."""
    extra_info: dict[str, Any] | None = field(default_factory=dict)
    """Whatever the data set has beside."""

    @property
    def mathematical(self) -> bool:
        return self.data_source in MATHEMATICAL or self.data_source.startswith("aime")


def row_of(problem: Problem, split: Split, index: int) -> dict[str, Any]:
    """The row of a problem, which is number `index` of its file. UserError if its data are not JSON values."""
    try:
        truth = json.dumps(problem.data, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"problem {problem.id}: its data are not JSON values: {error}") from error
    if json.loads(truth) != problem.data:
        raise UserError(f"problem {problem.id}: its data are not JSON values: use lists, and texts as keys")
    return {
        "data_source": OURS + problem.task,
        "prompt": [{"role": "user", "content": problem.text}],
        "ability": problem.task,
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {
            "split": split,
            "index": index,
            "id": problem.id,
            "terse": problem.terse,
            "required": problem.required,
        },
    }


def problem_of(row: Mapping[str, Any], place: str) -> Problem:
    """The problem of a row: of ours, the very same; of a data set of mathematics, one of the task `math`.

    UserError that begins with `place` for a row of other data, or one that lacks something.
    """
    known = typed(_Row, dict(row), place)
    if not known.data_source.startswith(OURS):
        return MATH.problem(*_mathematical(known, place))
    try:
        data = json.loads(str(known.reward_model.ground_truth))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: its ground truth is not JSON: {error}") from error
    task = known.data_source.removeprefix(OURS)
    beside = {name: (known.extra_info or {}).get(name) for name in ("id", "terse", "required")}
    return typed(Problem, {"task": task, "text": _question(known, place), "data": data, **beside}, place)


def _question(row: _Row, place: str) -> str:
    if [message.role for message in row.prompt] != ["user"]:
        raise UserError(f"{place}: its prompt is not one turn of the user: leave out what others say")
    return row.prompt[0].content


def _mathematical(row: _Row, place: str) -> tuple[str, str]:
    """Question and answer: the question by itself if the row has it, else without the instruction behind it."""
    if not row.mathematical:
        raise UserError(f"{place}: {row.data_source} has no short mathematical answers, and orgthink no task for it")
    extra = row.extra_info or {}
    alone = extra.get("question") or extra.get("raw_problem")
    question = alone if isinstance(alone, str) else _question(row, place)
    for asked in ASKED:
        question = question.removesuffix(asked)
    question, answer = question.strip(), str(row.reward_model.ground_truth).strip()
    if not question or not answer:
        raise UserError(f"{place}: it has no {'answer' if question else 'question'}")
    return question, answer


def write(problems: Sequence[Problem], split: Split, file: Path) -> None:
    """Write problems as a parquet file for verl. UserError if there are none, or one cannot be written."""
    if not problems:
        raise UserError(f"no problems to write to {file}")
    arrow, parquet = _pyarrow(file)
    rows, content = [row_of(problem, split, index) for index, problem in enumerate(problems)], io.BytesIO()
    try:
        parquet.write_table(arrow.Table.from_pylist(rows), content)
    except (ValueError, OverflowError) as error:  # half a surrogate pair, or a number past 64 bits
        raise UserError(f"{file} cannot be written: {error}") from error
    write_whole(file, content.getvalue())


def read(file: Path) -> Iterator[Problem]:
    """The problems of one of verl's parquet files, in order.

    UserError that names the file, and the row (the first is 1) if that is bad.
    """
    for place, row in _rows(file):
        yield problem_of(row, place)


def write_math(source: Path, file: Path) -> int:
    """Write one of verl's data sets of mathematics as a file for `math:FILE`; how many problems it has.

    UserError that names the source, and the row (the first is 1) if that is bad.
    """
    pairs = [_mathematical(typed(_Row, row, place), place) for place, row in _rows(source)]
    if not pairs:
        raise UserError(f"{source} holds no problems")
    lines = [json.dumps({"problem": question, "answer": answer}) + "\n" for question, answer in pairs]
    write_whole(file, "".join(lines).encode())
    return len(pairs)


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where each row of a parquet file is, and the row."""
    _, parquet = _pyarrow(file)
    try:
        rows = parquet.read_table(file).to_pylist()
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise UserError(f"{file} cannot be read as parquet: {error}") from error
    for number, row in enumerate(rows, 1):
        yield f"{file}, row {number}", row


def _pyarrow(file: Path) -> tuple[Any, Any]:
    """Its two modules; UserError that names the file without them."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise UserError(f"{file} needs {error.name}: pip install 'orgthink[data]'") from error
    return pyarrow, parquet
