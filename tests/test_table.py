"""The table of a run: which columns it has, and what stands in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from manager_episodes import Call, episode_of

from orgthink.cli.table import cells, conditions, lay_out
from orgthink.evaluation.plan import Evaluation
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.measure.summary import summarise
from orgthink.record.episode import Episode, Grade, Origin, Problem, Sampling, Span, Trace
from orgthink.record.folder import RunFolder
from orgthink.runtime.budget import Limits

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


@pytest.mark.parametrize(
    ("total", "budget"),
    [
        (64, "64 tokens an agent"),
        (None, "64 tokens a segment, renewed at each join"),
        (96, "64 tokens a segment, renewed at each join, and 96 an agent"),
    ],
)
def test_the_conditions_say_which_tokens_an_agent_has(tmp_path: Path, total: int | None, budget: str) -> None:
    organizations = {"asyncthink": OrganizationSpec("asyncthink")}
    plan = Evaluation("countdown", organizations, n=1, sampling=Sampling(64), limits=Limits(2, max_tokens=total))
    assert conditions(RunFolder.create(tmp_path / "run", "eval", plan))["budget"] == budget


def test_several_samples_of_a_problem_show_pass_at_k() -> None:
    """An organization with fewer, in a run that was stopped, has none."""
    wrong = replace(ALONE, id="p|alone|1", sample=1, grade=Grade(0, 1))
    rows = rows_of(ALONE, wrong, UNKNOWN)
    assert rows["alone"]["pass@2 %"].startswith("100 [")
    assert rows["alone"]["all correct %"].startswith("50 [")
    assert rows["unknown"]["pass@2 %"] == "–"
    assert not any("pass@" in name for name in rows_of(ALONE, UNKNOWN)["alone"])


def test_several_samples_show_maj_at_k_where_answers_can_be_counted() -> None:
    samples = [
        replace(ALONE, id=f"p|alone|{n}", sample=n, answer=a, grade=Grade(int(a == "5"), 1))
        for n, a in enumerate("565")
    ]
    rows = rows_of(*samples, UNKNOWN)
    assert rows["alone"]["maj@3 %"].startswith("100 [") and rows["unknown"]["maj@3 %"] == "–"
    several = [replace(one, problem=replace(one.problem, required=2), grade=Grade(2, 2)) for one in samples]
    assert not any("maj@" in name for name in rows_of(*several)["alone"])


def test_attempts_without_a_grade_are_shown_as_soon_as_there_are_any() -> None:
    failed = replace(ALONE, id="p|alone|1", sample=1, grade=None)
    rows = rows_of(ALONE, failed, UNKNOWN)
    assert [rows[name]["graded / n"] for name in ("alone", "unknown")] == ["1 / 2", "1 / 1"]
    assert rows_of(ALONE, UNKNOWN)["alone"]["n"] == "1"


HEADER, ROWS = (
    ["organization", "n", "all correct %", "critical path"],
    [["sequential", "60", "2 [0, 9]", "122 [119, 126]"], ["asyncthink", "60", "68 [56, 79]", "175 [168, 182]"]],
)


@pytest.mark.parametrize("width", [200, 60, 55, 45])
def test_a_table_fits_its_width_and_cuts_nothing(width: int) -> None:
    lines = lay_out(HEADER, ROWS, width)
    text = "\n".join(lines)
    assert all(cell in text for row in (HEADER, *ROWS) for cell in row)
    assert max(map(len, lines)) <= width


def test_a_table_that_is_too_wide_has_a_row_for_each_measure() -> None:
    lines = [line.partition("  ")[0] for line in lay_out(HEADER, ROWS, 46)]
    assert [name for name in lines if name in HEADER] == HEADER
