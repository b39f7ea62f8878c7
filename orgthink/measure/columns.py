"""Columns of the table of a run, for the terminal, notebooks and the page: meaning, unit, and which direction is
better; and its cells as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from orgthink.util.terminal import excerpt

Row = Mapping[str, Any]
"""Measures of one organization, as in `summary.json`."""

NONE: Mapping[str, Any] = {"mean": None}
"""Value of an organization without that number."""


class Better(StrEnum):
    """Which of two values is the better one."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Column:
    """One measure of every organization."""

    key: str
    """Unique in the table."""
    name: str
    """Heading, without the unit."""
    unit: str
    """Unit; a share is in `%`."""
    meaning: str
    """One sentence for readers who see the column for the first time."""
    better: Better | None = None
    """`None` where neither direction is better."""
    digits: int = 0
    """Decimals in a terminal."""
    path: tuple[str | int, ...] = ()
    """Where the value is in a row; by default under the key."""
    needs: str | None = None
    """Member of a row without which the column is left out."""
    k: int | None = None
    """Samples per problem that a row must have."""

    def value(self, row: Row) -> Mapping[str, Any]:
        """Mean, low and high of an organization; the mean is `None` without a value."""
        found: Any = row if self.k in (None, row.get("k")) else {}
        for part in self.path or (self.key,):
            try:
                found = found[part]
            except (LookupError, TypeError):
                return NONE
        return found or NONE

    @property
    def heading(self) -> str:
        """The name, with the unit of a share."""
        return f"{self.name} %" if self.unit == "%" else self.name

    @property
    def factor(self) -> int:
        """Factor of a value before it is printed."""
        return 100 if self.unit == "%" else 1


_CORRECT = Column("all_correct", "all correct", "%", "Episodes with all the required solutions.", Better.HIGHER)
_SOLVER = Column(
    "solver_correct", "solver", "%",
    "Episodes in which the solver's own answer, before any verification, is all correct.",
    Better.HIGHER, needs="solver_correct",
)  # fmt: skip
_QUANTITIES = (
    Column(
        "critical_path_steps", "critical path", "steps",
        "Decoding steps that cannot run side by side: the latency if decoding in parallel has no limit.", Better.LOWER,
    ),
    Column(
        "sampled_tokens", "tokens", "sampled", "Tokens that all agents decoded, on the critical path or not.",
        Better.LOWER,
    ),
    Column("replies", "replies", "of models", "Replies of models; an agent that goes on gives another one.", digits=1),
    Column(
        "seconds", "seconds", "wall clock",
        "Time of an episode from start to end, while no other episode of the run was running.", Better.LOWER, 2,
        needs="timed_alone",
    ),
    Column(
        "concurrency_pool", "η", "agents",
        "Agents that decode at once: tokens of all agents by the end of the critical path, divided by its length.",
        digits=2,
    ),
    Column("rounds", "rounds", "of a manager", "Replies in which a manager called tools or models.",
           digits=1, needs="rounds"),
    Column("calls_per_round", "calls/round", "calls", "Calls that a manager made in a round.",
           digits=2, needs="rounds"),
    Column("cost_units", "cost", "units", "Cost of the replies and calls of an episode, where known.",
           Better.LOWER, 1, needs="rounds"),
    Column("dollars", "dollars", "an episode", "Price of an episode.", Better.LOWER, 5, needs="dollars"),
)  # fmt: skip
_FAILURES = (
    Column("format_error_rate", "format errors", "%", "Episodes that broke the protocol.", Better.LOWER),
    Column(
        "truncated_rate", "cut off", "%", "Episodes in which a token limit or another budget cut an agent off.",
        Better.LOWER,
    ),
)  # fmt: skip
_ERRORS = {
    "engine": "Episodes in which an engine failed.",
    "tool": "Episodes in which a tool failed.",
    "deadline": "Episodes in which a deadline passed.",
}
"""Kinds of errors that have a column if they occurred."""


def columns(summary: Mapping[str, Row]) -> list[Column]:
    """The columns that a summary has values for, in the order of the table."""
    rows = list(summary.values())
    found = (_CORRECT, *_samples(rows), _SOLVER, *_solutions(rows), *_tasks(rows), *_QUANTITIES, *_own(rows))
    every = (*found, *_FAILURES, *_errors(rows))
    return [column for column in every if column.needs is None or any(column.needs in row for row in rows)]


def _samples(rows: Sequence[Row]) -> Iterator[Column]:
    for k in sorted({row["k"] for row in rows if "k" in row}):
        meaning = f"Chance that at least one of {k} samples of a problem is all correct."
        yield Column(f"pass@{k}", f"pass@{k}", "%", meaning, Better.HIGHER, path=("pass_at_k",), k=k)
        if any(row.get("k") == k and row.get("maj_at_k", NONE)["mean"] is not None for row in rows):
            meaning = f"Problems whose most frequent answer of {k} samples is all correct."
            yield Column(f"maj@{k}", f"maj@{k}", "%", meaning, Better.HIGHER, path=("maj_at_k",), k=k)


def _solutions(rows: Sequence[Row]) -> Iterator[Column]:
    for a in range(1, max((len(row.get("at_least", ())) for row in rows), default=1)):
        meaning = f"Episodes with at least {a} different correct solution{'s' if a > 1 else ''}."
        yield Column(f"at_least_{a}", f"≥ {a} right", "%", meaning, Better.HIGHER, path=("at_least", a - 1))


def _tasks(rows: Sequence[Row]) -> Iterator[Column]:
    """Columns of each task of a mixture."""
    for task in dict.fromkeys(task for row in rows for task in row.get("by_task", {})):
        key, path = f"by_task.{task}", ("by_task", task)
        meaning = f"Episodes on {task} with all the required solutions."
        yield replace(
            _CORRECT,
            key=f"{key}.all_correct",
            name=f"all correct, {task}",
            meaning=meaning,
            path=(*path, "all_correct"),
        )
        if any((row.get("forked") or NONE)["mean"] for row in rows):
            meaning = f"Episodes on {task} in which a model forked."
            yield Column(f"{key}.forked", f"forks, {task}", "%", meaning, path=(*path, "forked"))


def _own(rows: Sequence[Row]) -> Iterator[Column]:
    """Measures that an organization defines."""
    for name in dict.fromkeys(name for row in rows for name in row.get("measures", {})):
        meaning = "A measure that the organization itself defines."
        yield Column(f"measures.{name}", name.replace("_", " "), "", meaning, digits=2, path=("measures", name))


def _errors(rows: Sequence[Row]) -> Iterator[Column]:
    for kind, meaning in _ERRORS.items():
        column = Column(f"error_kinds.{kind}", f"{kind} errors", "%", meaning, Better.LOWER, path=("error_kinds", kind))
        if any(column.value(row)["mean"] for row in rows):
            yield column


def cells(summary: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table: a row for each organization, each number with its 95 % interval."""
    found = columns(summary)
    ungraded = any(row["ungraded"] for row in summary.values())
    header = ["organization", "graded / n" if ungraded else "n", *(column.heading for column in found)]
    rows = []
    for name, row in summary.items():
        attempts = f"{row['n'] - row['ungraded']} / {row['n']}" if ungraded else str(row["n"])
        numbers = (interval(column.value(row), column.factor, column.digits) for column in found)
        rows.append([excerpt(name), attempts, *numbers])
    return header, rows


def interval(estimate: Mapping[str, Any] | None, factor: float, digits: int) -> str:
    """A mean with its interval; a dash without one."""
    if estimate is None or estimate["mean"] is None:
        return "–"
    mean = f"{factor * estimate['mean']:.{digits}f}"
    if estimate["low"] is None or estimate["high"] is None:
        return mean
    return f"{mean} [{factor * estimate['low']:.{digits}f}, {factor * estimate['high']:.{digits}f}]"
