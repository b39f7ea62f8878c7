"""Every decision of A1 and A2 as a row: what was tried, how often it is right, and on how long a path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.shared.claims import Results, value, verdict
from orgthink.arena.tables import Column, interval, table


@dataclass(frozen=True, slots=True)
class Decision:
    """An arena that decides A1 and A2, as its claims are marked."""

    arena: str
    """Folder of the arena."""
    mark: str
    """What ids of its claims end with."""
    new: str
    """What it has that the arenas before it have not."""


def decisions_table(decisions: Sequence[Decision], arenas: Mapping[str, Results], rows: Mapping[str, Any]) -> str:
    """A row for each decision that has results; `rows` are the claims by their id."""
    known = [
        {
            "number": number,
            "arena": f"[{one.arena}]({one.arena}/README.md)",
            "new": one.new,
            "right": _percent(value(arenas[one.arena], "asyncthink", "accuracy").mean),
            "A1": rows[f"A1{one.mark}"],
            "A2": rows[f"A2{one.mark}"],
        }
        for number, one in enumerate(decisions, 1)
        if one.arena in arenas
    ]
    return table(known, _COLUMNS)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}".replace("%", " %")


def _measured(row: Mapping[str, Any], scale: float, digits: int) -> str:
    return interval({"mean": row["measured"], "low": row["low"], "high": row["high"]}, scale, digits)


_COLUMNS: tuple[Column, ...] = (
    ("", lambda row: str(row["number"])),
    ("arena", lambda row: row["arena"]),
    ("what is new", lambda row: row["new"]),
    ("right", lambda row: row["right"]),
    ("− best baseline, points", lambda row: _measured(row["A1"], 100, 1)),
    ("path ÷ its path", lambda row: _measured(row["A2"], 1, 2)),
    ("A1, A2 by the rule alone", lambda row: ", ".join(verdict(row[id_]) for id_ in ("A1", "A2"))),
)
