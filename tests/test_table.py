"""The table of a run: which columns it has, and what stands in them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from manager_episodes import Call, episode_of

from orgthink.cli.table import cells, print_table
from orgthink.episode import Episode, Grade, Origin, Problem, Span, Trace
from orgthink.measure.summary import summarise

MANAGED = episode_of([[Call(), Call("search")], [Call("reasoner", cost=1.0, model="large")]])
THINKER = Trace("thinker", "thinker", None, (Span(Origin.SAMPLED, "5", 1),), model="small", cost=8.0)
ALONE = Episode("p|alone|0", Problem("p", "t", ""), "alone", 1, (THINKER,), answer="5", grade=Grade(1, 1))
UNKNOWN = replace(ALONE, organization="unknown", traces=(replace(THINKER, cost=None),))
OURS = ("rounds", "calls/round", "cost")


def rows_of(*episodes: Episode) -> dict[str, dict[str, str]]:
    header, rows = cells(summarise(episodes))
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


def test_managers_show_their_rounds_and_everybody_beside_them_a_known_cost() -> None:
    rows = rows_of(MANAGED, ALONE, UNKNOWN)
    assert [rows["paramanager"][name] for name in OURS] == ["3.0", "1.33", "1.0"]
    assert [rows["alone"][name] for name in OURS] == ["–", "–", "8.0"]
    assert [rows["unknown"][name] for name in OURS] == ["–", "–", "–"]
    assert rows["paramanager"]["all correct %"].startswith("100 [")


def test_without_a_manager_the_columns_are_missing() -> None:
    assert not set(OURS) & set(rows_of(ALONE, UNKNOWN)["alone"])


def test_several_samples_of_a_problem_show_pass_at_k() -> None:
    """An organization with fewer, in a run that was stopped, has none."""
    wrong = replace(ALONE, id="p|alone|1", sample=1, grade=Grade(0, 1))
    rows = rows_of(ALONE, wrong, UNKNOWN)
    assert rows["alone"]["pass@2 %"].startswith("100 [")
    assert rows["alone"]["all correct %"].startswith("50 [")
    assert rows["unknown"]["pass@2 %"] == "–"
    assert not any("pass@" in name for name in rows_of(ALONE, UNKNOWN)["alone"])


@pytest.mark.parametrize(("episodes", "told"), [((MANAGED, ALONE), True), ((ALONE,), False)])
def test_the_caption_tells_the_unit_of_costs(episodes, told: bool, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(summarise(episodes), {"problems": "1 test problem", "seed": "0"})
    caption = capsys.readouterr().out.splitlines()[-1]
    assert caption.startswith("1 test problem; seed 0. [95 % interval].")
    assert ("; cost in units." in caption) == told
