"""Named benchmarks: `bench:NAME` and `bench:NAME:FILE`. Their rows are read where they lie, never downloaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orgthink.tasks.task import member_name, read_member
from orgthink.util.errors import UserError, pick
from orgthink.util.references import split_reference
from orgthink.util.registry import Registry
from orgthink_arena.tasks.bench.benchmark import (
    AnswerGrader,
    AnswerTemplate,
    Benchmark,
    BenchmarkRow,
    Columns,
    HubDataset,
    Reader,
)
from orgthink_arena.tasks.bench.task import BenchmarkTask

__all__ = [
    "BENCHMARKS",
    "AnswerGrader",
    "AnswerTemplate",
    "Benchmark",
    "BenchmarkRow",
    "BenchmarkTask",
    "Columns",
    "HubDataset",
    "Reader",
]

BENCHMARKS: Registry[Benchmark] = Registry(
    "benchmark",
    "orgthink.benchmarks",
    {
        "aime24": "orgthink_arena.tasks.bench.mathematics:AIME24",
        "aime25": "orgthink_arena.tasks.bench.mathematics:AIME25",
        "aime26": "orgthink_arena.tasks.bench.mathematics:AIME26",
        "amc23": "orgthink_arena.tasks.bench.mathematics:AMC23",
        "amc": "orgthink_arena.tasks.bench.mathematics:AMC",
        "hmmt-feb25": "orgthink_arena.tasks.bench.mathematics:HMMT_FEB25",
        "hmmt-nov25": "orgthink_arena.tasks.bench.mathematics:HMMT_NOV25",
        "beyond-aime": "orgthink_arena.tasks.bench.mathematics:BEYOND_AIME",
        "math-500": "orgthink_arena.tasks.bench.mathematics:MATH_500",
        "gpqa-diamond": "orgthink_arena.tasks.bench.choices:GPQA_DIAMOND",
        "mmlu-pro": "orgthink_arena.tasks.bench.choices:MMLU_PRO",
        "enigmata-sudoku": "orgthink_arena.tasks.bench.puzzles:ENIGMATA_SUDOKU",
        "livecodebench-v5": "orgthink_arena.tasks.bench.livecodebench:LIVECODEBENCH_V5",
        "livecodebench-v6": "orgthink_arena.tasks.bench.livecodebench:LIVECODEBENCH_V6",
        "countdown-3to4": "orgthink_arena.tasks.bench.puzzles:COUNTDOWN_3TO4",
    },
    "an orgthink_arena.tasks.bench.Benchmark",
    lambda benchmark: benchmark if isinstance(benchmark, Benchmark) else None,
)
"""Benchmarks by name."""


class BenchmarkTasks:
    """`bench:NAME`, `bench:NAME:FILE` and `bench:NAME:FOLDER`; the name may be a reference."""

    def __call__(self, text: str) -> BenchmarkTask:
        """UserError if there is no such benchmark. The rows are read when problems are drawn."""
        whole, settings = read_member("bench", text)
        known, file = split_reference(whole) or whole.partition(":")[::2]
        benchmark = configured(BENCHMARKS.named(known), settings)
        name = member_name("bench", known, settings)
        return BenchmarkTask(benchmark, name, Path(file) if file else None)

    def lines(self, text: str) -> Iterator[str]:
        """What is known of one benchmark; of none or `*` a line for each."""
        for name in BENCHMARKS if text in ("", "*") else (text,):
            how = self(name).benchmark
            rows = how.rows if how.subset in (None, how.rows) else f"{how.subset} of {how.rows}"
            settings = "".join(f", {key}={value}" for key, value in how.settings.items())
            yield (
                f"bench:{name:<18} {rows} rows, avg@{how.k} at T = {how.temperature:g}, template {how.template.name}, "
                f"{' or '.join(dataset.id for dataset in how.datasets)}{settings}"
            )


def configured(benchmark: Benchmark, given: Mapping[str, Any]) -> Benchmark:
    """The benchmark with these settings. UserError for an unknown one, or one of another type."""
    settings: dict[str, Any] = dict(benchmark.settings)
    for name, value in given.items():
        default = pick(f"setting of {benchmark.name}", name, benchmark.settings)
        try:
            settings[name] = type(default)(value)
        except (TypeError, ValueError):
            raise UserError(f"{name} of {benchmark.name} is {value!r}: it must be a number") from None
    return replace(benchmark, settings=settings)


BENCH = BenchmarkTasks()
