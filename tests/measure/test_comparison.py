"""Organizations against one of them, problem by problem: means, paired differences and changes by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.cli import main
from orgthink.engines import EngineSpec
from orgthink.evaluation.plan import Evaluation
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.measure.comparison import Flip, by_organization, flips, paired
from orgthink.record.episode import Episode, Grade, Origin, Problem, Sampling, Span, Trace
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError


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


def against(baseline: str) -> dict[str, Any]:
    found = by_organization(EPISODES)
    return {name: paired(found[baseline], others) for name, others in found.items() if name != baseline}


def test_means_differences_and_changes_by_hand():
    """Base: (100 + 300) / 2 = 200 tokens on p and 600 on q, a mean of 400. With tools 100 and 460: a mean of 280.

    The difference is (-100 - 140) / 2 = -120, 30 % of 400. Correct are 1/2 and 0 of the base, and all with tools.
    """
    compared = against("sequential")
    assert list(compared) == ["tool-use", "ungraded"]
    tokens, correct = compared["tool-use"]["sampled_tokens"], compared["tool-use"]["all_correct"]
    assert (tokens["baseline"], tokens["mean"], tokens["change"]) == (400, 280, pytest.approx(-0.3))
    assert (tokens["difference"]["mean"], tokens["difference"]["n"]) == (-120, 2)
    assert tokens["difference"]["high"] + 120 == pytest.approx(12.706 * 20), (
        "t with 1 degree of freedom, 20 = 28.3 / √2"
    )
    assert (correct["baseline"], correct["mean"]) == (0.25, 1.0)
    assert (correct["difference"]["mean"], correct["change"]) == (0.75, 3.0)


def test_a_problem_without_a_grade_is_in_neither_mean():
    """Only q is graded on both sides: 0 and 1. A share of 0 is none."""
    correct = against("sequential")["ungraded"]["all_correct"]
    assert (correct["baseline"], correct["mean"], correct["change"]) == (0, 1, None)
    assert (correct["difference"]["mean"], correct["difference"]["n"]) == (1, 1)


@pytest.fixture
def run(tmp_path: Path) -> str:
    plan = Evaluation("math", {"sequential": OrganizationSpec("sequential")}, n=3, engine=EngineSpec("toy"))
    folder = RunFolder.create(tmp_path / "run", "eval", plan)
    with folder.journal() as journal:
        for episode in EPISODES:
            journal.append(episode)
    return str(folder.path)


OUTCOMES = st.lists(st.tuples(st.sampled_from("pqrs"), st.sampled_from([True, False, None])), max_size=12)


def attempts(outcomes: list[tuple[str, bool | None]]) -> list[Episode]:
    return [attempt("sequential", problem, i, 5, correct) for i, (problem, correct) in enumerate(outcomes)]


def test_flips_by_hand():
    before = attempts([("p", True), ("p", True), ("p", False), ("q", False), ("r", True), ("r", False), ("s", True)])
    after = attempts([("p", False), ("q", True), ("q", None), ("r", True), ("s", True)])
    assert flips(before, after) == [Flip("p", "q", 2 / 3, 0.0), Flip("q", "q", 0.0, 1.0)], "r was a tie"
    assert [flip.gained for flip in flips(before, after)] == [False, True]


@given(OUTCOMES, OUTCOMES)
def test_what_flips_flips_back_and_explains_the_difference(before, after):
    there, back = flips(attempts(before), attempts(after)), flips(attempts(after), attempts(before))
    assert [(flip.problem, flip.before, flip.after) for flip in there] == [
        (flip.problem, flip.after, flip.before) for flip in back
    ]
    assert flips(attempts(before), attempts(before)) == []
    single = dict(before), dict(after)  # one attempt at each problem, the last
    pairs = [attempts(list(of_one.items())) for of_one in single]
    changes = [1 if flip.gained else -1 for flip in flips(*pairs)]
    found = paired(*pairs)["all_correct"]["difference"] if all(pairs) else {"n": 0}
    assert sum(changes) == pytest.approx(found["mean"] * found["n"] if found["n"] else 0)


def test_problems_of_one_id_and_two_texts_are_no_pairs():
    other = [replace(e, problem=replace(e.problem, text="another question")) for e in EPISODES[:1]]
    with pytest.raises(UserError, match="problem p has two texts"):
        paired(EPISODES[:2], other)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    """Two runs: the first of `sequential` and `tool-use`, the second of `sequential` at another temperature."""
    for name, organizations, temperature in (("old", ("sequential", "tool-use"), 1.0), ("new", ("sequential",), 0.5)):
        specs = {label: OrganizationSpec(label) for label in organizations}
        plan = Evaluation("math", specs, n=2, engine=EngineSpec("toy"), sampling=Sampling(512, temperature))
        with RunFolder.create(tmp_path / name, "eval", plan).journal() as journal:
            for episode in EPISODES[:6] if name == "old" else [attempt("sequential", "p", 0, 40, False)]:
                journal.append(episode)
    return str(tmp_path / "old"), str(tmp_path / "new")


def test_two_runs_are_compared_on_what_both_attempted(runs: tuple[str, str], capsys: pytest.CaptureFixture[str]):
    old, new = runs
    assert main(["compare", old, new, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["conditions"]["temperature"] == ["1", "0.5"] and "seed" not in found["conditions"]
    assert found["compared"]["sequential"]["sampled_tokens"]["difference"]["mean"] == 40 - 200
    assert found["flips"] == {"sequential": []}, "one of two is a tie"
    assert main(["compare", new, old, "--organizations", "sequential", "tool-use"]) == 0
    out = capsys.readouterr().out
    assert "temperature: 0.5 → 1" in out and "sequential → tool-use: 1 problems became right, 0 became wrong" in out
    assert "+ p  0 → 1  q" in out


@pytest.mark.parametrize("alone", [0, 1, 2], ids=["neither", "one", "both"])
def test_wall_clock_is_compared_where_both_runs_had_one_episode_at_a_time(runs, alone: int, capsys):
    for folder in runs[:alone]:
        config = Path(folder) / "config.json"
        stored = json.loads(config.read_text())
        stored["settings"]["concurrency"] = 1
        config.write_text(json.dumps(stored))
    assert main(["compare", *runs]) == 0
    assert ("seconds" in capsys.readouterr().out) is (alone == 2)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--organizations", "tool-use", "tool-use"], "unknown organization of the second 'tool-use'"),
        (["--organizations", "nobody", "sequential"], "unknown organization of the first run 'nobody'"),
        (["--organizations", "tool-use", "sequential"], None),
    ],
)
def test_organizations_of_two_runs_are_named(runs, more, words, capsys: pytest.CaptureFixture[str]):
    assert main(["compare", *runs, *more]) == (0 if words is None else 2)
    out, err = capsys.readouterr()
    assert (words in err and err.count("\n") == 1 and not out) if words else "tool-use → sequential" in out


def test_runs_without_a_common_problem_or_name_say_so(runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name, episodes in (("elsewhere", [attempt("sequential", "z", 0, 5, True)]), ("empty", [])):
        plan = Evaluation("math", {"sequential": OrganizationSpec("sequential")}, n=1, engine=EngineSpec("toy"))
        with RunFolder.create(tmp_path / name, "eval", plan).journal() as journal:
            for episode in episodes:
                journal.append(episode)
    assert main(["compare", runs[0], str(tmp_path / "elsewhere")]) == 2
    assert "no problem in common" in capsys.readouterr().err
    assert main(["compare", runs[0], str(tmp_path / "empty")]) == 2
    assert capsys.readouterr().err.endswith("empty has no episodes\n")
