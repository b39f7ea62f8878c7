"""The tables of README.md, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.shared.readme import (
    Column,
    Rows,
    circumstances,
    fill,
    interval,
    number,
    percent,
    table,
    titled,
    trainings,
)


def render(text: str, results: Mapping[str, Any]) -> str:
    """README.md with new tables between its markers. UserError if a marker is missing."""
    accuracy = tuple(titled(task, percent(task)) for task in results["conditions"]["task"].split("+"))
    table1 = (_METHOD, _MODEL, _ACCURACY, *accuracy, *_SPENT)
    blocks = {
        "table1": _table(results["table1"], table1),
        "comparison": _table(results["comparison"], _COMPARISON),
        "table2": f"{_table(results['table2'], _TABLE2)}\n\n{_table(results['speedup'], _SPEEDUP)}",
        "table3": _table(results["table3"], (_METHOD, _POOL, *table1[1:])),
        "table6": _table(results["table6"], _TABLE6),
        "robustness": _table(results["robustness"], _ROBUSTNESS),
        "figure3": "![Figure 3](figure3.svg)",
        "figure4": "![Figure 4](figure4.svg)",
        "figure5": f"{_distribution(results['figure5'])}\n\n![Figure 5](figure5.svg)",
        "figure6": "![Figure 6](figure6.svg)",
        "conditions": _conditions(results["conditions"]),
    }
    return fill(text, blocks)


def _table(rows: Rows, columns: Sequence[Column]) -> str:
    """A table. Results from before replies were counted have no column of them."""
    counted = any("replies" in row for row in rows)
    return table(rows, [column for column in columns if counted or column is not _REPLIES])


_METHOD: Column = ("", lambda row: row["method"])
_MODEL: Column = ("model", lambda row: f"`{row['model']}`")
_POOL: Column = ("pool", lambda row: row["pool"])
_ACCURACY = titled("accuracy %", percent("accuracy"))
_COST = titled("cost units", number("cost_units", 1))
_TOKENS = number("tokens")
_REPLIES = titled("replies", number("replies", 1))
_SPENT = (_COST, _REPLIES, _TOKENS)

_COMPARISON = (
    ("points more", lambda row: f"{row['first']} - {row['second']}"),
    _MODEL,
    _ACCURACY,
    titled("cost units, first", number("first_cost_units", 1)),
    titled("second", number("second_cost_units", 1)),
    titled("difference", number("cost_difference", 1)),
)
_TABLE2 = (
    _METHOD,
    _MODEL,
    _ACCURACY,
    _TOKENS,
    titled("seconds alone", number("seconds", 2)),
    titled("critical path (steps)", number("critical_path_steps")),
    _COST,
    _REPLIES,
)
_SPEEDUP = (
    ("times faster", lambda row: f"{row['first']} than {row['second']}"),
    titled("seconds", number("seconds", 2)),
    titled("critical path", number("critical_path_steps", 2)),
)
_TABLE6 = (("cost target", lambda row: f"{row['cost_target']:g}"), _MODEL, _ACCURACY, *_SPENT)
_ROBUSTNESS = (
    _METHOD,
    ("calls that fail %", lambda row: f"{100 * row['faults']:g}"),
    _ACCURACY,
    titled("share kept %", percent("kept")),
    *_SPENT,
)


def _distribution(rows: Rows) -> str:
    """Figure 5 in numbers: one row per manager, with the tool that it calls most."""
    columns = [_METHOD, _MODEL, titled("calls", number("calls", 1)), ("most called", _largest)]
    columns += _shared(rows, "tools") + _shared(rows, "models")
    return table(rows, columns)


def _largest(row: Mapping[str, Any]) -> str:
    found = row["largest_tool"]
    return "–" if found is None else f"`{found['tool']}` {interval(found['share'], 100, 1)}"


def _shared(rows: Rows, name: str) -> list[Column]:
    """One column per tool or model, with its share in per cent."""
    found = sorted({one for row in rows for one in row[name]})
    return [(f"`{one}` %", lambda row, one=one: _share(row[name], one)) for one in found]


def _share(shares: Mapping[str, Any], name: str) -> str:
    return f"{100 * shares[name]['mean']:.1f}" if name in shares else "–"


def _conditions(facts: Mapping[str, Any]) -> str:
    tokens = ", ".join(f"{tokens} {who}" for who, tokens in facts["tokens"].items())
    return (
        f"{facts['n']} held-out problems of `{facts['task']}`, an equal share each, {facts['seeds']} samples of each; "
        f"seconds: the first {min(facts['n'], facts['timed'])} of them, one at a time. T = {facts['temperature']:g}, "
        f"c = {facts['capacity']}; tokens of a reply: {tokens}. {_learned(facts['trajectories'])}"
        f"{circumstances(facts)}{trainings(facts['models'])}"
    )


def _learned(trajectories: Mapping[str, Any] | None) -> str:
    """A sentence on the data of SFT; an empty text for a stand-in, which is not trained."""
    if trajectories is None:
        return ""
    left: Sequence[str] = [f"{count} {reason}" for reason, count in trajectories["left_out"].items()]
    return f"SFT learned from {trajectories['retained']} trajectories; left out: {'; '.join(left)}. "
