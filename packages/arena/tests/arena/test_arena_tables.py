"""Tables of an arena hold what others wrote, such as errors of servers, as text only, and say what intervals cover."""

from __future__ import annotations

from typing import Any

import pytest
from orgthink_arena.contest.rows import failed_row
from orgthink_arena.contest.tables import blocks, conditions

HOSTILE = "a | b </td><script>alert(4)</script>\n# title\n![x](http://evil/x.png) <!-- /methods --> `"
FACTS: dict[str, Any] = {
    "cap": "1x", "organization": "sequential", "model": "m", "settings": {}, "trainings": 0, "group": "", "note": "",
}  # fmt: skip
CONDITIONS = {
    "hardware": {"cpu": "CPU", "cores": 2},
    "mean_budget": {"tokens": 1, "replies": 1},
    "caps": {"1x": {"tokens": 1, "replies": 1}},
    **dict.fromkeys(("n", "split", "task", "samples", "timed", "reference", "capacity", "unit", "commit", "command")),
    "seeds": [0],
    "temperature": 1.0,
}


def tables(status: str = "failed", **facts: Any) -> dict[str, str]:
    """The tables of an arena of one method, which failed."""
    row = {**failed_row("base", status, {**FACTS, **facts}), "tasks": facts.get("tasks", {})}
    trial = {"variant": row["settings"], "accuracy": 0.5}
    return blocks(
        {
            "tables": {"1x": [row]},
            "table1": [row],
            "differences": {},
            "choices": [{"method": "base", "cap": "1x", "variant": row["settings"], "tried": [trial]}],
            "preparations": [],
            "conditions": CONDITIONS,
        }
    )


@pytest.mark.parametrize("place", ["status", "group", "note", "model", "organization", "settings", "tasks"])
def test_what_others_wrote_is_no_markup(place: str) -> None:
    given = {"settings": {"x": HOSTILE}, "tasks": {HOSTILE: {"mean": None}}}.get(place, HOSTILE)
    plain, spoiled = tables(), tables(**{place: given})
    if place == "tasks":
        plain = tables(tasks={"t": {"mean": None}})
    for name, table in spoiled.items():
        lines = table.splitlines()
        assert len(lines) == len(plain[name].splitlines()), name
        assert [line.count("|") for line in lines] == [line.count("|") for line in plain[name].splitlines()], name
        spans = table.split("`")[::2] if place in ("model", "organization") else [table]
        if not name.startswith("frontier"):
            assert not any("<" in part or "![" in part for part in spans), name
    assert any("alert(4)" in table for table in spoiled.values())


def test_the_conditions_say_of_what_seconds_are() -> None:
    assert "; seconds were not measured." in conditions(CONDITIONS)
    assert "; seconds: the first 24 with each seed, one at a time." in conditions({**CONDITIONS, "timed": 24})
