"""The tables of README.md, between markers. What stands outside them is written by people."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orgthink.errors import UserError

Rows = Sequence[Mapping[str, Any]]
Column = tuple[str, Callable[[Mapping[str, Any]], str]]
"""Its title, and its cell in a row."""


def render(text: str, results: Mapping[str, Any]) -> str:
    """README.md with its marked places filled in anew; UserError if a place is missing."""
    blocks = {
        "figure5": f"{_table(results['figure5'], _FIGURE5)}\n\n![Figure 5](figure5.svg)",
        "parity": _table(results["parity"], _PARITY),
        "table3": _table(results["table3"], _TABLE3),
        "figure6": "![Figure 6](figure6.svg)",
        "figure7": "![Figure 7](figure7.svg)",
        "table4": _table(results["table4"], _TABLE4),
        "conditions": _conditions(results["conditions"]),
    }
    for name, block in blocks.items():
        text = _fill(text, name, block)
    return text


def _fill(text: str, name: str, block: str) -> str:
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    place = re.compile(f"{re.escape(first)}.*?{re.escape(last)}", re.DOTALL)
    if not place.search(text):
        raise UserError(f"README.md has no place for {name}: put {first} and {last} into it")
    return place.sub(lambda match: f"{first}\n\n{block}\n\n{last}", text, count=1)


def _table(rows: Rows, columns: Sequence[Column]) -> str:
    lines = [[title for title, _ in columns], ["---", *["--:"] * (len(columns) - 1)]]
    lines += [[cell(row) for _, cell in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(name: str, digits: int = 0) -> Column:
    return name, lambda row: interval(row.get(name), 1, digits)


def _percent(name: str) -> Column:
    return name, lambda row: interval(row.get(name), 100, 1)


def _titled(title: str, column: Column) -> Column:
    return title, column[1]


def interval(estimate: Mapping[str, Any] | None, factor: float, digits: int) -> str:
    """`89.0 [87.1, 90.6]`; a dash where there is no number."""
    if estimate is None or estimate["mean"] is None:
        return "–"
    mean = f"{factor * estimate['mean']:.{digits}f}"
    if estimate["low"] is None or estimate["high"] is None:
        return mean
    return f"{mean} [{factor * estimate['low']:.{digits}f}, {factor * estimate['high']:.{digits}f}]"


def _at_least(a: int) -> Column:
    return f"≥ {a} %", lambda row: interval(row["at_least"][a - 1], 100, 1)


_METHOD: Column = ("", lambda row: row["method"])
_BUDGET: Column = ("budget", lambda row: str(row["budget"]))
_ALL = _titled("all correct %", _percent("all_correct"))
_PATH = _titled("critical path (steps)", _number("critical_path_steps"))
_ERRORS = _titled("format errors %", _percent("format_error_rate"))
_SECONDS = _titled("seconds alone", _number("seconds", 2))
_TOKENS = _titled("tokens", _number("sampled_tokens"))
_RATIO = _titled("η %", _percent("concurrency_ratio"))
_FORKS = _titled("forks", _number("forks", 2))

_FIGURE5 = (_METHOD, _BUDGET, *map(_at_least, (1, 2, 3)), _ALL, _PATH, _RATIO, _TOKENS, _SECONDS, _ERRORS)
_PARITY = (
    _METHOD,
    _BUDGET,
    ("trained run", lambda row: f"`{row['model']}`"),
    _ALL,
    _PATH,
    _titled("AsyncThink's ÷ this", _number("ratio", 2)),
    _TOKENS,
    _SECONDS,
)
_TABLE3 = (_METHOD, _ALL, _titled("accuracy R_A %", _percent("accuracy")), _RATIO, _PATH, _FORKS, _SECONDS, _ERRORS)
_TABLE4 = (_METHOD, _ALL, _PATH, _FORKS, _RATIO, _TOKENS, _ERRORS)


def _conditions(told: Mapping[str, Any]) -> str:
    machine = told["hardware"]
    runs = [
        f"| `{name}` | {run['steps']} | {run['seed']} | {run['training_seconds'] / 60:.0f} | {run['commit']} |"
        for name, run in told["models"].items()
    ]
    lines = [
        f"{told['n']} held-out problems of `{told['task']}` (table 4: `sudoku`), {told['seeds']} sampling seeds, "
        f"T = {told['temperature']:g}, c = {told['capacity']}, {told['budget']} tokens an agent where no other budget "
        f"is named. {machine['cpu']}, {machine['cores']} cores; the evaluations took "
        f"{told['evaluation_seconds'] / 60:.0f} minutes. Commit {told['commit']}. `{told['command']}`. 95 % intervals "
        "over problems.",
    ]
    if runs:
        lines += ["", "| run | steps | seed | minutes of training | commit |", "| --- | --: | --: | --: | --- |", *runs]
    return "\n".join(lines)
