"""Columns of the table of a run, for the terminal and for the page: what each number means, and which way is better."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

Row = Mapping[str, Any]
"""Measures of one organization, as in `summary.json`."""

NONE: Mapping[str, Any] = {"mean": None}
"""Of an organization that has no such number."""


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
    value: Callable[[Row], Mapping[str, Any]]
    """Mean, low and high of an organization; the mean is `None` if there is none."""
    better: Better | None = None
    """`None` where more is neither better nor worse."""
    digits: int = 0
    """Decimals that a terminal has space for."""

    @property
    def heading(self) -> str:
        """The name, with the unit of a share."""
        return f"{self.name} %" if self.unit == "%" else self.name

    @property
    def factor(self) -> int:
        """What a value is multiplied by before it is printed."""
        return 100 if self.unit == "%" else 1


def columns(summary: Mapping[str, Row]) -> list[Column]:
    """The columns that a summary has values for, in the order of the table."""
    rows = list(summary.values())
    return [*_shares(rows), *_tasks(rows), *_quantities(rows), *_own(rows), *_errors(rows)]


def _share(key: str, name: str, meaning: str, better: Better, value: Callable[[Row], Any] | None = None) -> Column:
    return Column(key, name, "%", meaning, value or partial(_of, key=key), better)


def _quantity(key: str, name: str, unit: str, digits: int, meaning: str, better: Better | None = None) -> Column:
    return Column(key, name, unit, meaning, partial(_of, key=key), better, digits)


def _shares(rows: Sequence[Row]) -> Iterator[Column]:
    """Shares of right answers."""
    yield _share("all_correct", "all correct", "Episodes with all the solutions that were asked for.", Better.HIGHER)
    for k in sorted({row["k"] for row in rows if "k" in row}):
        meaning = f"Chance that at least one of {k} samples of a problem is all correct."
        yield _share(f"pass@{k}", f"pass@{k}", meaning, Better.HIGHER, partial(_passed, k=k))
    if any("solver_correct" in row for row in rows):
        meaning = "Episodes in which the solver's own answer, before any verification, is all correct."
        yield _share("solver_correct", "solver", meaning, Better.HIGHER)
    for a in range(1, max((len(row.get("at_least", ())) for row in rows), default=1)):
        meaning = f"Episodes with at least {a} different correct solution{'s' if a > 1 else ''}."
        yield _share(f"at_least_{a}", f"≥ {a} right", meaning, Better.HIGHER, partial(_at_least, a=a))


def _tasks(rows: Sequence[Row]) -> Iterator[Column]:
    """What differs between the tasks of a mixture."""
    for task in dict.fromkeys(task for row in rows for task in row.get("by_task", {})):
        meaning = f"Episodes on {task} with all the solutions that were asked for."
        correct = partial(_of_task, task=task, key="all_correct")
        yield Column(f"by_task.{task}.all_correct", f"all correct, {task}", "%", meaning, correct, Better.HIGHER)
        if any((row.get("forked") or NONE)["mean"] for row in rows):
            meaning = f"Episodes on {task} in which a model forked."
            yield Column(
                f"by_task.{task}.forked", f"forks, {task}", "%", meaning, partial(_of_task, task=task, key="forked")
            )


def _of_task(row: Row, task: str, key: str) -> Mapping[str, Any]:
    return row.get("by_task", {}).get(task, {}).get(key) or NONE


def _quantities(rows: Sequence[Row]) -> Iterator[Column]:
    meaning = "Decoding steps that cannot run side by side: the latency if decoding in parallel has no limit."
    yield _quantity("critical_path_steps", "critical path", "steps", 0, meaning, Better.LOWER)
    meaning = "Tokens that all agents decoded, on the critical path or not."
    yield _quantity("sampled_tokens", "tokens", "sampled", 0, meaning, Better.LOWER)
    yield _quantity("replies", "replies", "of models", 1, "Replies of models; an agent that goes on gives another one.")
    meaning = "Time of an episode from its start to its end, while other episodes of the run were under way."
    yield _quantity("seconds", "seconds", "wall clock", 2, meaning, Better.LOWER)
    meaning = "Agents that decode at once: tokens of all agents by the end of the critical path, divided by its length."
    yield _quantity("concurrency_pool", "η", "agents", 2, meaning)
    if any("people_seconds" in row for row in rows):
        meaning = "Seconds in which an episode did nothing but wait for people; they are no part of its seconds."
        yield _quantity("people_seconds", "waiting for people, s", "wall clock", 1, meaning)
    if any("rounds" in row for row in rows):
        yield _quantity("rounds", "rounds", "of a manager", 1, "Replies in which a manager called tools or models.")
        yield _quantity("calls_per_round", "calls/round", "calls", 2, "Calls that a manager made in a round.")
        meaning = "What the replies and calls of an episode cost, where it is known."
        yield _quantity("cost_units", "cost", "units", 1, meaning, Better.LOWER)
    if any("dollars" in row for row in rows):
        yield _quantity("dollars", "dollars", "an episode", 5, "What the servers bill for an episode.", Better.LOWER)


def _own(rows: Sequence[Row]) -> Iterator[Column]:
    """Measures that an organization brings along: which way is better is not known."""
    for name in dict.fromkeys(name for row in rows for name in row.get("measures", {})):
        meaning = "A measure that the organization itself defines."
        value = partial(_of, key=name, part="measures")
        yield Column(f"measures.{name}", name.replace("_", " "), "", meaning, value, digits=2)


_ERRORS = {
    "engine": "Episodes in which an engine failed.",
    "tool": "Episodes in which a tool failed.",
    "deadline": "Episodes in which a deadline passed.",
}
"""Boundaries whose errors are shown where there are any. Broken protocols and spent budgets have columns anyway."""


def _errors(rows: Sequence[Row]) -> Iterator[Column]:
    yield _share("format_error_rate", "format errors", "Episodes that broke the protocol.", Better.LOWER)
    meaning = "Episodes in which a token limit or another budget cut an agent off."
    yield _share("truncated_rate", "cut off", meaning, Better.LOWER)
    for kind, meaning in _ERRORS.items():
        value = partial(_of, key=kind, part="error_kinds")
        if any(value(row)["mean"] for row in rows):
            yield _share(f"error_kinds.{kind}", f"{kind} errors", meaning, Better.LOWER, value)


def _of(row: Row, key: str, part: str | None = None) -> Mapping[str, Any]:
    return (row if part is None else row.get(part, {})).get(key) or NONE


def _passed(row: Row, k: int) -> Mapping[str, Any]:
    return row["pass_at_k"] if row.get("k") == k else NONE


def _at_least(row: Row, a: int) -> Mapping[str, Any]:
    found = row.get("at_least", ())
    return found[a - 1] if a <= len(found) else NONE
