"""Tables of a README.md, between markers. The text outside of the markers is written by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orgthink.arena.tables import Column, Rows, interval, table
from orgthink.errors import UserError

__all__ = ["Column", "Rows", "circumstances", "fill", "interval", "number", "percent", "table", "titled", "trainings"]


def fill(text: str, blocks: Mapping[str, str]) -> str:
    """The page with new tables between its markers. UserError if a marker is missing."""
    for name, block in blocks.items():
        first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
        place = re.compile(f"{re.escape(first)}.*?{re.escape(last)}", re.DOTALL)
        if not place.search(text):
            raise UserError(f"README.md has no place for {name}: put {first} and {last} into it")
        text = place.sub(lambda match, new=f"{first}\n\n{block}\n\n{last}": new, text, count=1)
    return text


def number(name: str, digits: int = 0) -> Column:
    return name, lambda row: interval(row.get(name), 1, digits)


def percent(name: str) -> Column:
    return name, lambda row: interval(row.get(name), 100, 1)


def titled(title: str, column: Column) -> Column:
    return title, column[1]


def circumstances(facts: Mapping[str, Any]) -> str:
    """The conditions as text: machine, time, commit and command."""
    machine = facts["hardware"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores; the evaluations took "
        f"{facts['evaluation_seconds'] / 60:.0f} minutes. Commit {facts['commit']}. `{facts['command']}`. 95 % "
        "intervals over problems."
    )


def trainings(models: Mapping[str, Mapping[str, Any]]) -> str:
    """A table of the trained runs after an empty line; an empty text without any."""
    runs = [
        f"| `{name}` | {run['steps']} | {run['seed']} | {run['training_seconds'] / 60:.0f} | {run['commit']} |"
        for name, run in models.items()
    ]
    head = ["", "", "| run | steps | seed | minutes of training | commit |", "| --- | --: | --: | --: | --- |"]
    return "\n".join([*head, *runs]) if runs else ""
