"""Benchmarks with several options, of which one letter is right."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from orgthink.tasks.rows import CHOICE, LETTERS
from orgthink_arena.tasks.bench.benchmark import AnswerTemplate, Benchmark, BenchmarkRow, HubDataset
from orgthink_arena.tasks.bench.mathematics import text_of

LETTER = AnswerTemplate("letter", "Put the letter of the right option alone in \\boxed{}.")
"""Asks for one letter."""

GPQA_COLUMNS = {
    "question": ("Question",),
    "correct": ("Correct Answer",),
    **{f"incorrect {i}": (f"Incorrect Answer {i}",) for i in (1, 2, 3)},
}
MMLU_PRO_COLUMNS = {
    "question": ("question",),
    "options": ("options", "choices"),
    "answer": ("answer", ""),
    "index": ("answer_index", ""),
    "category": ("category", "subject", ""),
}


def read_gpqa(values: Mapping[str, Any]) -> BenchmarkRow:
    """A row with one right and three wrong answers. A hash of the question is the seed of their order: it is the same
    wherever the row comes from."""
    question = text_of(values["question"], "question")
    right = text_of(values["correct"], "correct answer")
    options = [right, *(text_of(values[f"incorrect {i}"], f"incorrect answer {i}") for i in (1, 2, 3))]
    random.Random(hashlib.sha256(question.encode("utf-8", "replace")).hexdigest()).shuffle(options)
    return _choice(question, options, LETTERS[options.index(right)])


def read_mmlu_pro(values: Mapping[str, Any]) -> BenchmarkRow:
    """A row with up to ten options in an order of their own, and the letter or the number of the right one."""
    options = [text_of(option, "option") for option in _list(values["options"])]
    while options and options[-1] == "N/A":  # fills up to ten
        options.pop()
    letter, index = str(values["answer"] or "").strip().upper(), values["index"]
    whole = index.is_integer() if isinstance(index, float) else isinstance(index, int) or str(index).isdecimal()
    if index is not None and not whole:
        raise ValueError(f"answer_index is no number: {index!r}")
    letters = {*([letter] if letter else []), *(LETTERS[int(index) : int(index) + 1] for _ in [0] if index is not None)}
    if len(letters) != 1 or not letters <= {*LETTERS[: len(options)]}:
        raise ValueError("it has no letter of an option as its answer, or two")
    question = text_of(values["question"], "question")
    return _choice(question, options, letters.pop(), str(values["category"] or ""))


def _list(value: Any) -> Sequence[Any]:
    """A list, or the JSON text of one, as CSV files have it."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list) or not 2 <= len(value) <= len(LETTERS):
        raise ValueError(f"it has no list of 2 to {len(LETTERS)} options")
    return value


def _choice(question: str, options: list[str], letter: str, category: str = "") -> BenchmarkRow:
    lines = [f"{name}) {option}" for name, option in zip(LETTERS, options, strict=False)]
    return BenchmarkRow("\n".join([question, "", *lines]), {"options": options, "answer": letter}, stratum=category)


GPQA_DIAMOND = Benchmark(
    name="gpqa-diamond",
    datasets=(HubDataset("Idavidrein/gpqa", "train", files=("*gpqa_diamond*", "*gpqa-diamond*")),),
    columns=GPQA_COLUMNS,
    read=read_gpqa,
    template=LETTER,
    grader=CHOICE,
    rows=198,
    k=8,
)
"""GPQA Diamond, 198 questions on the level of graduates with four options."""
MMLU_PRO = Benchmark(
    name="mmlu-pro",
    datasets=(HubDataset("TIGER-Lab/MMLU-Pro", "test"),),
    columns=MMLU_PRO_COLUMNS,
    read=read_mmlu_pro,
    template=LETTER,
    grader=CHOICE,
    rows=12_032,
    k=8,
    subset=70,
)
"""MMLU-Pro, questions of 14 subjects with up to ten options; by convention 70, of each subject its share."""
