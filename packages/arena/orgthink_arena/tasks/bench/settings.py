"""Settings of a benchmark in the name of its task: `bench:NAME?SETTING=VALUE&…`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orgthink.util.errors import UserError, pick
from orgthink_arena.tasks.bench.benchmark import Benchmark


def configured(benchmark: Benchmark, given: Mapping[str, Any]) -> Benchmark:
    """The benchmark with these settings in place of its own. UserError for an unknown one, or one of another type."""
    settings: dict[str, Any] = dict(benchmark.settings)
    for name, value in given.items():
        default = pick(f"setting of {benchmark.name}", name, benchmark.settings)
        try:
            settings[name] = type(default)(value)
        except (TypeError, ValueError):
            raise UserError(f"{name} of {benchmark.name} is {value!r}: it must be a number") from None
    return replace(benchmark, settings=settings)
