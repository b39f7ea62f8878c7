"""The tables of an arena as Markdown, from results.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orgthink.measure.columns import interval
from orgthink_arena.contest.rows import OK

Rows = Sequence[Mapping[str, Any]]
Column = tuple[str, Callable[[Mapping[str, Any]], str]]
"""Title of the column, and function from a row to its cell."""


_MARKUP = str.maketrans({"<": "&lt;", "|": "&#124;", "[": "&#91;", "`": "&#96;"})
_ENDS = str.maketrans({"|": "¦", "`": "'"})


def prose(text: str) -> str:
    """Untrusted text in a cell, such as the error of a server: on one line, without HTML, links and cell borders."""
    return " ".join(text.split()).translate(_MARKUP)


def code(text: str) -> str:
    """Untrusted text as code in a cell, which it cannot end."""
    return f"`{' '.join(text.split()).translate(_ENDS)}`"


def table(rows: Rows, columns: Sequence[Column]) -> str:
    """The table as Markdown, with right-aligned numbers."""
    lines = [[title for title, _ in columns], ["---", *["--:"] * (len(columns) - 1)]]
    lines += [[cell(row) for _, cell in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def drawn(results: Mapping[str, Any]) -> list[str]:
    """Names of the caps that have a plot: those at which several methods ran."""
    return [cap for cap, rows in results["tables"].items() if len(rows) > 1]


def blocks(results: Mapping[str, Any]) -> dict[str, str]:
    """All tables by name: one for each cap, the differences at each, the choices, the preparations, the conditions."""
    found = {f"at-{cap}": table(rows, _ROWS) for cap, rows in results["tables"].items()}
    found |= {f"frontier-{cap}": f"![Accuracy against its price](frontier-{cap}.svg)" for cap in drawn(results)}
    found |= {f"differences-{cap}": table(rows, _GAPS) for cap, rows in results["differences"].items()}
    found["methods"] = table(results["table1"], _METHODS)
    found["tasks"] = _tasks(results["table1"])
    found["choices"] = table([_choice(one) for one in results["choices"]], _CHOICES)
    found["preparations"] = table(results["preparations"], _PREPARATIONS)
    found["conditions"] = conditions(results["conditions"])
    return found


def document(results: Mapping[str, Any]) -> str:
    """All tables as one document."""
    facts = results["conditions"]
    parts = blocks(results)
    lines = ["# Arena", parts["conditions"]]
    for cap in results["tables"]:
        lines += [f"## {_heading(cap, facts)}", parts[f"at-{cap}"]]
        if parts.get(f"differences-{cap}"):
            lines += [f"Against `{facts['reference']}`, paired:", parts[f"differences-{cap}"]]
        if cap in drawn(results):
            lines.append(parts[f"frontier-{cap}"])
    lines += ["## By task, at the first cap", parts["tasks"], "## Methods", parts["methods"]]
    lines += ["## Choices on development problems", parts["choices"], "## Preparations", parts["preparations"]]
    return "\n\n".join(lines) + "\n"


def conditions(facts: Mapping[str, Any]) -> str:
    """The conditions as text."""
    machine, mean = facts["hardware"], facts["mean_budget"]
    limits = (f"{name}: {cap['tokens']} tokens and {cap['replies']} replies" for name, cap in facts["caps"].items())
    unit = "problems" if facts["unit"] is None else f"the values of `{facts['unit']}` that problems share"
    first = f"seconds: the first {facts['timed']} with each seed, one at a time"
    timed = first if facts["timed"] else "seconds were not measured"
    sentences = (
        f"{facts['n']} {facts['split']} problems of `{facts['task']}`, {facts['samples']} attempts at each with each "
        f"of {len(facts['seeds'])} seeds; {timed}.",
        f"An episode of `{facts['reference']}` without a cap takes {mean['tokens']} tokens and {mean['replies']} "
        f"replies on average; caps of every episode: {'; '.join(limits) or 'none'}.",
        f"c = {facts['capacity']}, T = {facts['temperature']:g} where no other was chosen. "
        f"{machine['cpu']}, {machine['cores']} cores.",
        f"Commit {facts['commit']}. `{facts['command']}`.",
        f"95 % intervals over {unit}, and over trainings where a method has one for each seed.",
    )
    return " ".join(sentences)


def _heading(cap: str, facts: Mapping[str, Any]) -> str:
    limits = facts["caps"].get(cap)
    return "Without a cap" if limits is None else f"At {cap}: {limits['tokens']} tokens, {limits['replies']} replies"


def _number(name: str, title: str, digits: int = 0, factor: float = 1) -> Column:
    return title, lambda row: interval(row.get(name), factor, digits)


_METHOD: Column = ("", lambda row: row["method"])
_ROWS: tuple[Column, ...] = (
    _METHOD,
    ("group", lambda row: prose(row["group"])),
    ("accuracy %", lambda row: interval(row["accuracy"], 100, 1) if row["status"] == OK else prose(row["status"])),
    _number("tokens", "tokens"),
    _number("cost", "replies", 1),
    _number("cost_units", "cost units", 1),
    _number("critical_path_steps", "critical path (steps)"),
    _number("concurrency", "η", 2),
    _number("forked", "forked %", 0, 100),
    _number("seconds", "seconds alone", 2),
    _number("search_tokens", "search tokens"),
    _number("cut", "cut off %", 0, 100),
)
_GAPS: tuple[Column, ...] = (
    _METHOD,
    _number("accuracy", "accuracy, points", 1, 100),
    _number("tokens", "tokens"),
    _number("cost", "replies", 1),
    _number("critical_path_steps", "critical path (steps)"),
    _number("critical_path_ratio", "critical path ÷", 2),
    _number("seconds_ratio", "seconds ÷", 2),
)
_METHODS: tuple[Column, ...] = (
    _METHOD,
    ("organization", lambda row: code(row["organization"])),
    ("model", lambda row: code(str(row["model"])) if row["model"] else "the pool's"),
    ("chosen settings", lambda row: _settings(row["settings"])),
    ("trainings", lambda row: str(row["trainings"])),
    ("what was trained or searched", lambda row: prose(row["note"]) or "nothing"),
)
_CHOICES: tuple[Column, ...] = (
    _METHOD,
    ("cap", lambda row: row["cap"]),
    ("chosen", lambda row: row["chosen"]),
    ("tried: accuracy %", lambda row: row["tried"]),
)
_PREPARATIONS: tuple[Column, ...] = (
    ("run", lambda row: code(row["run"])),
    ("recipe", lambda row: code(row["recipe"])),
    ("steps", lambda row: str(row["steps"])),
    ("episodes", lambda row: f"{row['episodes']:,}"),
    ("sampled tokens", lambda row: f"{row['sampled_tokens']:,}"),
    ("replies", lambda row: "–" if row["replies"] is None else f"{row['replies']:,}"),
    ("minutes", lambda row: f"{row['seconds'] / 60:.1f}"),
)


def _choice(one: Mapping[str, Any]) -> dict[str, str]:
    tried = ", ".join(f"{_settings(trial['variant'])}: {100 * trial['accuracy']:.0f}" for trial in one["tried"])
    return {"method": one["method"], "cap": one["cap"], "chosen": _settings(one["variant"]), "tried": tried}


def _settings(settings: Mapping[str, Any]) -> str:
    return prose(" ".join(f"{name}={value}" for name, value in settings.items())) or "–"


def _tasks(rows: Rows) -> str:
    tasks = dict.fromkeys(task for row in rows for task in row["tasks"])
    columns = [(f"{prose(task)} %", lambda row, task=task: interval(row["tasks"].get(task), 100, 1)) for task in tasks]
    return table(rows, [_METHOD, *columns])
