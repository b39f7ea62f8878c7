"""The tables of README.md, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.shared.readme import Column, circumstances, fill, interval, number, percent, table, titled, trainings


def render(text: str, results: Mapping[str, Any]) -> str:
    """README.md with new tables between its markers. UserError if a marker is missing."""
    blocks = {
        "figure5": f"{table(results['figure5'], _FIGURE5)}\n\n![Figure 5](figure5.svg)",
        "parity": table(results["parity"], _PARITY),
        "table3": table(results["table3"], _TABLE3),
        "figure6": "![Figure 6](figure6.svg)",
        "figure7": "![Figure 7](figure7.svg)",
        "table4": table(results["table4"], _TABLE4),
        "conditions": _conditions(results["conditions"]),
    }
    return fill(text, blocks)


def _at_least(a: int) -> Column:
    return f"≥ {a} %", lambda row: interval(row["at_least"][a - 1], 100, 1)


_METHOD: Column = ("", lambda row: row["method"])
_BUDGET: Column = ("budget", lambda row: str(row["budget"]))
_ALL = titled("all correct %", percent("all_correct"))
_PATH = titled("critical path (steps)", number("critical_path_steps"))
_ERRORS = titled("format errors %", percent("format_error_rate"))
_SECONDS = titled("seconds alone", number("seconds", 2))
_TOKENS = titled("tokens", number("sampled_tokens"))
_RATIO = titled("η %", percent("concurrency_ratio"))
_FORKS = titled("forks", number("forks", 2))

_FIGURE5 = (_METHOD, _BUDGET, *map(_at_least, (1, 2, 3)), _ALL, _PATH, _RATIO, _TOKENS, _SECONDS, _ERRORS)
_PARITY = (
    _METHOD,
    _BUDGET,
    ("trained run", lambda row: f"`{row['model']}`"),
    _ALL,
    _PATH,
    titled("AsyncThink's ÷ this", number("ratio", 2)),
    _TOKENS,
    _SECONDS,
)
_TABLE3 = (_METHOD, _ALL, titled("accuracy R_A %", percent("accuracy")), _RATIO, _PATH, _FORKS, _SECONDS, _ERRORS)
_TABLE4 = (_METHOD, _ALL, _PATH, _FORKS, _RATIO, _TOKENS, _ERRORS)


def _conditions(facts: Mapping[str, Any]) -> str:
    return (
        f"{facts['n']} held-out problems of `{facts['task']}` (table 4: `sudoku`), {facts['seeds']} sampling seeds, "
        f"T = {facts['temperature']:g}, c = {facts['capacity']}, {facts['budget']} tokens an agent where no other "
        f"budget is named. {circumstances(facts)}{trainings(facts['models'])}"
    )
