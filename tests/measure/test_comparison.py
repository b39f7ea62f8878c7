"""Organizations against one of them, problem by problem: means, paired differences and changes by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orgthink.cli import main
from orgthink.engines import EngineSpec
from orgthink.episode import Episode, Grade, Origin, Problem, Span, Trace
from orgthink.errors import UserError
from orgthink.evaluation import Evaluation, OrganizationSpec
from orgthink.measure.comparison import against
from orgthink.store import RunFolder


def attempt(organization: str, problem: str, sample: int, tokens: int, correct: bool | None) -> Episode:
    """One that decoded so many tokens, one a second."""
    spans = (Span(Origin.PROMPT, "q", 5), Span(Origin.SAMPLED, "a", tokens))
    return Episode(
        f"{problem}|{organization}|{sample}",
        Problem(problem, "math", "q"),
        organization,
        1,
        (Trace("thinker", "thinker", None, spans),),
        answer="a",
        grade=None if correct is None else Grade(int(correct), 1),
        seconds=float(tokens),
    )


EPISODES = [
    attempt("sequential", "p", 0, 100, True),
    attempt("sequential", "p", 1, 300, False),
    attempt("sequential", "q", 0, 600, False),
    attempt("sequential", "only here", 0, 9000, True),
    attempt("tool-use", "p", 0, 100, True),
    attempt("tool-use", "q", 0, 460, True),
    attempt("ungraded", "p", 0, 200, None),
    attempt("ungraded", "q", 0, 200, True),
]


def test_means_differences_and_changes_by_hand():
    """Base: (100 + 300) / 2 = 200 tokens on p and 600 on q, a mean of 400. With tools 100 and 460: a mean of 280.

    The difference is (-100 - 140) / 2 = -120, 30 % of 400. Correct are 1/2 and 0 of the base, and all with tools.
    """
    compared = against(EPISODES, "sequential")
    assert list(compared) == ["tool-use", "ungraded"]
    tokens, correct = compared["tool-use"]["sampled_tokens"], compared["tool-use"]["all_correct"]
    assert (tokens["baseline"], tokens["mean"], tokens["change"]) == (400, 280, pytest.approx(-0.3))
    assert (tokens["difference"]["mean"], tokens["difference"]["n"]) == (-120, 2)
    assert (tokens["difference"]["low"], tokens["difference"]["high"]) == (-140, -100), "two problems, drawn twice"
    assert (correct["baseline"], correct["mean"]) == (0.25, 1.0)
    assert (correct["difference"]["mean"], correct["change"]) == (0.75, 3.0)


def test_a_problem_without_a_grade_is_in_neither_mean():
    """Only q is graded on both sides: 0 and 1. A share of 0 is none."""
    correct = against(EPISODES, "sequential")["ungraded"]["all_correct"]
    assert (correct["baseline"], correct["mean"], correct["change"]) == (0, 1, None)
    assert (correct["difference"]["mean"], correct["difference"]["n"]) == (1, 1)


def test_an_organization_that_is_not_there_is_named():
    with pytest.raises(UserError, match=r"unknown organization of the run 'sequentia': did you mean sequential\?"):
        against(EPISODES, "sequentia")


@pytest.fixture
def run(tmp_path: Path) -> str:
    plan = Evaluation("math", {"sequential": OrganizationSpec("sequential")}, n=3, engine=EngineSpec("toy"))
    folder = RunFolder.create(tmp_path / "run", "eval", plan)
    with folder.journal() as journal:
        for episode in EPISODES:
            journal.append(episode)
    return str(folder.path)


def test_the_command_prints_the_comparison(run: str, capsys: pytest.CaptureFixture[str]):
    assert main(["measure", run, "--against", "sequential", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["against"] == json.loads(json.dumps(against(EPISODES, "sequential")))
    assert main(["measure", run, "--against", "sequential"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["tool-use", "all", "correct", "%"] in [line[:4] for line in lines]
    assert ["tokens", "400.0", "-120.0", "[-140.0,", "-100.0]", "-30"] in lines


def test_what_cannot_be_compared_is_one_line(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = tmp_path / "text.json"
    text.write_text("{}")
    for given, words in (((run, "nobody"), "unknown organization"), ((str(text), "sequential"), "text.json is none")):
        assert main(["measure", given[0], "--against", given[1]]) == 2
        out, err = capsys.readouterr()
        assert not out and words in err and err.count("\n") == 1


def test_an_organization_by_itself_is_compared_with_nothing():
    assert against([attempt("sequential", "p", 0, 5, True)], "sequential") == {}


def test_a_run_of_one_organization_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan = Evaluation("math", {"sequential": OrganizationSpec("sequential")}, n=1, engine=EngineSpec("toy"))
    with RunFolder.create(tmp_path / "one", "eval", plan).journal() as journal:
        journal.append(attempt("sequential", "p", 0, 5, True))
    assert main(["measure", str(tmp_path / "one"), "--against", "sequential"]) == 2
    assert "has no other organization than sequential" in capsys.readouterr().err
