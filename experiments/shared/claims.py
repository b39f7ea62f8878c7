"""Claims that were written down before they were measured (experiments/CLAIMS.md), as rows for results.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from orgthink.arena.plans import UNCAPPED
from orgthink.arena.tables import Column, interval, table
from orgthink.measure.estimate import student

Results = Mapping[str, Any]
"""The content of an arena's results.json."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A number with its 95 % interval; `None` where it could not be measured."""

    mean: float | None
    """The number."""
    low: float | None
    """Lower end."""
    high: float | None
    """Upper end."""

    @property
    def negated(self) -> Measured:
        """The difference the other way round."""
        return Measured(*(None if value is None else -value for value in (self.mean, self.high, self.low)))

    @property
    def inverse(self) -> Measured:
        """The ratio the other way round."""
        return Measured(*(1 / value if value else None for value in (self.mean, self.high, self.low)))


UNKNOWN = Measured(None, None, None)
"""What was not measured."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim, what was measured, and what would refute it."""

    id: str
    """Its number in CLAIMS.md, with what is measured where that is more than one thing."""
    text: str
    """What is claimed."""
    measured: Measured
    """The number that decides."""
    refuted_if: str
    """When it does not hold."""
    refuted: Callable[[float, float, float], bool]
    """The same as a function of mean, lower and upper end."""
    decides: bool = True
    """Whether the number is what CLAIMS.md decides by; one that stands beside it decides nothing."""
    caveat: str = ""
    """What its verdict has to be read with, such as `VOID`; empty where it says all."""

    def row(self) -> dict[str, Any]:
        """The row of results.json. `holds` is `None` where what decides was not measured or has no interval."""
        mean, low, high = self.measured.mean, self.measured.low, self.measured.high
        unknown = mean is None or low is None or high is None or not self.decides
        return {
            "id": self.id,
            "claim": self.text,
            "measured": mean,
            "low": low,
            "high": high,
            "refuted_if": self.refuted_if,
            "holds": None if unknown else not self.refuted(mean, low, high),
            "caveat": self.caveat,
        }


VOID = "void by B4"
"""The base errs in so few problems that nothing can be decided."""
AMENDED = "by an amendment of B4"
"""The same, by a rule that was written down later, before anything held out was run."""
LETTER = "by its letter only"
"""The rule is met, and what it was meant to show is not shown."""


def read_with(caveat: str, claims: Iterable[Claim]) -> list[Claim]:
    """The claims with a caveat, after those that they have."""
    return [replace(one, caveat=f"{one.caveat}, {caveat}" if one.caveat else caveat) for one in claims]


class ByMeans(Claim):
    """A claim that means alone decide, as its rule says: there is no interval."""

    def row(self) -> dict[str, Any]:
        """The row; `holds` is `None` where the mean is not known."""
        mean = self.measured.mean
        return super().row() | {"holds": None if mean is None else not self.refuted(mean, mean, mean)}


def above_zero(id_: str, text: str, measured: Measured, caveat: str = "") -> Claim:
    """A claim that a difference is above zero, by its lower end."""
    return Claim(id_, text, measured, "lower end ≤ 0", lambda _, low, __: low <= 0, caveat=caveat)


def means(first: float | None, second: float | None, of: Callable[[float, float], float]) -> Measured:
    """A function of two means, without an interval."""
    return UNKNOWN if first is None or second is None else Measured(of(first, second), None, None)


def value(results: Results, method: str, quantity: str) -> Measured:
    """A method's row of the table without caps."""
    return _found(results["tables"][UNCAPPED.name], method, quantity)


def against_reference(results: Results, method: str, quantity: str) -> Measured:
    """The method - the reference, or a ratio of the two."""
    return _found(results["differences"].get(UNCAPPED.name, ()), method, quantity)


def over_seeds(values: Sequence[float]) -> Measured:
    """Mean over trainings or seeds with Student's interval."""
    if len(values) < 2:
        return UNKNOWN
    mean, half = fmean(values), student(len(values) - 1) * stdev(values) / sqrt(len(values))
    return Measured(mean, mean - half, mean + half)


def estimate(found: Mapping[str, float | None] | None) -> Measured:
    """An estimate as JSON has it; without one, what was not measured."""
    return UNKNOWN if found is None else Measured(*(found[end] for end in ("mean", "low", "high")))


def _found(rows: Iterable[Mapping[str, Any]], method: str, quantity: str) -> Measured:
    for row in rows:
        if row["method"] == method and quantity in row:
            return estimate(row[quantity])
    return UNKNOWN


def best(results: Results, group: str) -> str:
    """The method of a group that was right most often on development problems, by the choices of the grids.

    The first of those that are alike. ValueError if the group has no method, or one that had no choice: nothing says
    how often it is right there, and the best of the others is not the best of the group.
    """
    members = [row["method"] for row in results["tables"][UNCAPPED.name] if row["group"] == group]
    tried = {
        choice["method"]: max(trial["accuracy"] for trial in choice["tried"])
        for choice in results["choices"]
        if choice["cap"] == UNCAPPED.name and choice["method"] in members
    }
    unknown = [method for method in members if method not in tried]
    if unknown or not tried:
        raise ValueError(
            f"{', '.join(unknown) or 'nobody'} of {group} has not chosen its settings on development problems"
        )
    return max(tried, key=lambda method: tried[method])


def best_held_out(results: Results, group: str) -> str:
    """The method of a group that was right most often on the problems of the table: a choice in its favour.

    The first of those that are alike. ValueError if the group has no method.
    """
    rows = [row for row in results["tables"][UNCAPPED.name] if row["group"] == group]
    if not rows:
        raise ValueError(f"no method is in the group {group}")
    return str(max(rows, key=lambda row: row["accuracy"]["mean"])["method"])


def verdict(row: Mapping[str, Any]) -> str:
    """Whether a claim holds, in words, without its caveat."""
    unknown = "not measured" if row["measured"] is None else "not decided"
    return {True: "yes", False: "**no**", None: unknown}[row["holds"]]


def _holds(row: Mapping[str, Any]) -> str:
    return f"{verdict(row)}, {row['caveat']}" if row["caveat"] and row["holds"] is not None else verdict(row)


_COLUMNS: tuple[Column, ...] = (
    ("", lambda row: str(row["id"])),
    ("claim", lambda row: str(row["claim"])),
    ("measured", lambda row: interval({"mean": row["measured"], "low": row["low"], "high": row["high"]}, 1, 3)),
    ("refuted if", lambda row: str(row["refuted_if"])),
    ("holds", _holds),
)


def claims_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """The claims as a table."""
    return table(list(rows), _COLUMNS)
