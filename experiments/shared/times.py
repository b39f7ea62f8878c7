"""What the arenas of a paper took: trainings, minutes, machine and commit, by their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from experiments.shared.claims import Results
from orgthink.arena.tables import Column, table


def times_table(arenas: Mapping[str, Results], usual: Iterable[str]) -> str:
    """A row for each arena that has results; `usual` are those of `make results-evidence`.

    Minutes are of one process each. Arenas that share trainings name them again. The last row adds up what the usual
    ones took: each training once, as the first arena that names it has it.
    """
    usual = tuple(usual)
    rows = [_row(name, results, name in usual) for name, results in arenas.items()]
    trained: dict[str, float] = {}
    for name in usual:
        for run in arenas[name]["preparations"] if name in arenas else ():
            trained.setdefault(run["run"], run["seconds"])
    total = {
        "arena": "this page's part of `make results-evidence`",
        "runs": len(trained),
        "seconds": sum(trained.values()),
    }
    return table([*rows, {**total, "machine": "", "commit": "", "usual": ""}], _COLUMNS)


def _row(name: str, results: Results, usual: bool) -> dict[str, Any]:
    runs, facts = results["preparations"], results["conditions"]
    cpu = facts["hardware"]["cpu"].replace("(R)", "").replace(" Processor", "")
    cores = facts["hardware"]["cores"]
    return {
        "arena": f"[{name}]({name}/README.md)",
        "runs": len(runs),
        "seconds": sum(run["seconds"] for run in runs),
        "machine": f"{cpu}, {cores} {'core' if cores == 1 else 'cores'}",
        "commit": f"`{facts['commit']}`",
        "usual": "yes" if usual else "no",
    }


_COLUMNS: tuple[Column, ...] = (
    ("arena", lambda row: row["arena"]),
    ("in `make results-evidence`", lambda row: row["usual"]),
    ("trainings and searches", lambda row: str(row["runs"])),
    ("minutes of one process", lambda row: f"{row['seconds'] / 60:,.0f}"),
    ("machine", lambda row: row["machine"]),
    ("commit", lambda row: row["commit"]),
)
