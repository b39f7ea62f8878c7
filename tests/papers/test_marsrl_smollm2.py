"""MarsRL on SmolLM2: lessons are true, claims follow from outcomes, variants do what they say, a tiny one runs to its
end."""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean

import pytest
from lines import ROOT

sys.path.append(str(ROOT))

pytest.importorskip("orgthink_pocket")

from engines.models import tiny_model

from orgthink.cli import main as orgthink_main
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluation.grading import grade
from orgthink.grammar.solution import read_proposal
from orgthink.grammar.verdict import Verdict, read_report
from orgthink.models.adapters import WEIGHTS
from orgthink.models.lora import read_tensors
from orgthink.organizations.prompts import style_named
from orgthink.organizations.verifier_corrector import VerifierCorrector
from orgthink.record.episode import Episode, Sampling
from orgthink.runtime import Backing, Limits, attempt
from orgthink.runtime.clock import run_virtual
from orgthink.tasks.sudoku import read
from orgthink.tasks.sudoku_six import SIDE, SUDOKU_SIX, UNITS, faults, render
from papers import marsrl_can_pay, marsrl_lessons, stages
from papers import marsrl_smollm2 as experiment
from papers.claims import Rows
from papers.conditions import state
from papers.experiment import Experiment, passed
from papers.marsrl_can_pay import Players, Skill, simulated
from papers.marsrl_lessons import STYLE, check, empty, filled, lesson, report, solution
from papers.marsrl_smollm2 import DESIGN, SIZES, outcome
from papers.marsrl_smollm2_claims import balanced, mends, passed_units
from papers.marsrl_variants import SHARED, Fresh, Sampled, lines, true_lines
from papers.outcomes import Outcome

PROBLEMS = list(islice(SUDOKU_SIX.problems("train", 0), 60))
PROBLEM = PROBLEMS[0]
RIGHT = filled(PROBLEM.data["clues"])
i, j = empty(PROBLEM.data["clues"])[0]
WRONG = [[RIGHT[r][c] if (r, c) != (i, j) else 1 + RIGHT[i][j] % SIDE for c in range(SIDE)] for r in range(SIDE)]

# Lessons


def lessons(role: str) -> list[tuple]:
    made = [(problem, lesson(role, problem, random.Random(problem.id))) for problem in PROBLEMS]
    return [(problem, one, read_proposal(one.response, ended=True)) for problem, one in made]


def test_solvers_learn_right_solutions():
    for problem, one, proposal in lessons("solver"):
        assert SUDOKU_SIX.grade(problem, proposal.result or "").all_correct
        assert one.response.count("\n") == len(empty(problem.data["clues"])) + SIDE
    grid = [[1, 2, 3, 4, 5, 6], [4, 5, 6, 1, 2, 3], [2, 3, 1, 5, 6, 4], [5, 6, 4, 2, 3, 1], [3, 1, 2, 6, 4, 5]]
    grid.append([6, 4, 5, 3, 1, 2])
    clues = [grid[0], [0, *grid[1][1:]], *grid[2:]]
    assert solution(clues, empty(clues), grid).startswith("B1 56123 4\n"), "the digits in the order of reading"


def test_lessons_are_of_all_roles_and_differ():
    made = list(marsrl_lessons.lessons("sudoku-six", 40))
    assert [one.role for one in made] == ["solver", "solver", "verifier", "corrector"] * 10
    assert len({one.response.split()[0] for one in made if one.role == "verifier"}) > 4
    slips = [marsrl_lessons.slipped(one.data["clues"], random.Random(one.id)) for one in PROBLEMS]
    wrong = [(filled(one.data["clues"]), grid) for one, grid in zip(PROBLEMS, slips, strict=True)]
    assert {1, 2} <= {sum(right[r][c] != grid[r][c] for r in range(SIDE) for c in range(SIDE)) for right, grid in wrong}


def test_verifiers_learn_true_lines_and_a_verdict_about_these_lines_only():
    missed, counts = 0, []
    for _, one, _ in lessons("verifier"):
        grid = read(one.query.partition("Solution:")[2], SIDE)
        assert grid is not None
        found = lines(one.response)
        for unit, (digits, bad) in found.items():
            assert digits == "".join(str(grid[r][c]) for r, c in UNITS[unit]) and bad == (unit in faults(grid))
        judged = read_report(one.response, style_named(STYLE).verdicts)
        any_bad = any(bad for _, bad in found.values())
        assert judged.verdict is (Verdict.WRONG if any_bad else Verdict.CORRECT)
        assert judged.findings == report(list(found)[-1] if any_bad else None)
        missed += bool(faults(grid)) and not any_bad
        counts += [] if any_bad else [len(found)]
    assert missed >= 5, "a part of the units is not enough: reinforcement learning has something to find"
    assert 3 < fmean(counts) < 8


def test_correctors_learn_to_mend_the_named_unit_or_to_begin_again():
    begun = doubted = 0
    for problem, one, proposal in lessons("corrector"):
        grid, named = read(proposal.text, SIDE), one.query.partition("Bad: ")[2].split("\n")[0]
        assert grid is not None and named in UNITS and named not in faults(grid)
        again = one.response.count("\n") == len(empty(problem.data["clues"])) + SIDE
        begun += again
        doubted += SUDOKU_SIX.grade(problem, one.query.partition("Solution:")[2].partition("Bad:")[0]).all_correct
        assert not again or SUDOKU_SIX.grade(problem, proposal.text).all_correct
    assert 15 < begun < 50
    assert 0 < doubted < 25, "a report may be mistaken"


# Variants


def played(organization: VerifierCorrector, *texts: tuple[str, str]) -> Episode:
    """The graded episode; each text is said by the role whose prompt has the other text."""
    engine = ScriptedEngine([Turn(text, when=when) for when, text in texts])
    episode = run_virtual(attempt(organization, PROBLEM, Backing(engine, Sampling(999)), limits=Limits(8)))
    run_virtual(engine.aclose())
    return grade(episode, SUDOKU_SIX)


SOLVER, VERIFIER, CORRECTOR = "The answer is six rows.", "Is it correct?", "Correct it."
SOLVED, SLIPPED = (solution(PROBLEM.data["clues"], empty(PROBLEM.data["clues"]), grid) for grid in (RIGHT, WRONG))
LOOP = {"prompts": STYLE, "passes": 1, "rounds": 4, "attempts": 1}


def test_the_record_says_what_was_judged_and_how_much_was_checked():
    checks = [check(WRONG, faults(WRONG))[0], check(RIGHT, list(UNITS)[:5])[0]]
    episode = played(
        VerifierCorrector(**LOOP), (SOLVER, SLIPPED), (VERIFIER, checks[0]), (CORRECTOR, SOLVED), (VERIFIER, checks[1])
    )
    found = outcome("main, T = 0.6", episode)
    assert found.solved and found.judged == ((False, False, 1), (True, True, 5))
    assert found.reward is None and mends(found) == [1] and passed_units(found) == [5]
    assert list(true_lines([episode])) == [True] * 6
    a, b, c = ("".join(map(str, row)) for row in RIGHT[:3])
    report = f"A {a[::-1]} ok\nB {b} bad\nC {c} ok\nD 12 ok\nB4 {b} ok\nE {b} ok, too\n</think>\nBad: B\nCorrect: yes"
    mistaken = played(VerifierCorrector(**LOOP), (SOLVER, SOLVED), (VERIFIER, report))
    assert list(true_lines([mistaken])) == [False, False, True], "wrong digits, a wrong verdict; others are no lines"


def test_a_fresh_attempt_takes_the_place_of_the_corrector():
    bad, good = check(WRONG, [faults(WRONG)[0]])[0], check(RIGHT, ["A"])[0]
    episode = played(Fresh(**LOOP), (SOLVER, SLIPPED), (VERIFIER, bad), (SOLVER, SOLVED), (VERIFIER, good))
    assert [trace.role for trace in episode.traces[1:]] == ["solver", "verifier"] * 2
    assert outcome("fresh, T = 0.6", episode).judged == ((False, False, 1), (True, True, 1))


def test_votes_and_choices():
    alone = played(Sampled(**LOOP, samples=1), (SOLVER, SOLVED))
    vote = played(Sampled(**LOOP, samples=3), (SOLVER, SLIPPED), (SOLVER, SOLVED), (SOLVER, SLIPPED))
    assert [outcome("", one).solved for one in (alone, vote)] == [True, False]
    bad, good = check(WRONG, [faults(WRONG)[0]])[0], check(RIGHT, ["A"])[0]
    says = [(f"{render(grid)}\n\nIs it correct?", text) for grid, text in ((WRONG, bad), (RIGHT, good), (WRONG, bad))]
    three = [(SOLVER, SLIPPED), (SOLVER, SOLVED), (SOLVER, SLIPPED)]
    choice = played(Sampled(**LOOP, samples=3, verified=True), *three, *says)
    assert outcome("", choice).solved and outcome("", choice).judged == ()
    cut_off = [(SOLVER, "t " * 1_000), (SOLVER, SOLVED), (VERIFIER, good)]
    assert outcome("", played(Sampled(**LOOP, samples=2, verified=True), *cut_off)).solved, "it is not verified"
    none = played(Sampled(**LOOP, samples=3, verified=True), *three, *[(VERIFIER, bad)] * 3)
    assert none.answer == render(WRONG), "all count if none passes"


def test_one_reward_for_all_agents_is_that_of_the_answer():
    settings = SHARED.settings
    loop = VerifierCorrector(**settings.rollout.organization.settings)
    bad, good = check(WRONG, faults(WRONG))[0], check(RIGHT, ["A"])[0]
    begun = [(SOLVER, SLIPPED), (VERIFIER, bad), (CORRECTOR, SLIPPED), (VERIFIER, bad)]
    right = played(loop, *begun, (CORRECTOR, SOLVED), (VERIFIER, good))
    wrong = played(loop, (SOLVER, SLIPPED), (VERIFIER, good))
    assert [settings.reward(one).total for one in (right, wrong)] == [1, 0]
    roles = [trace.role for trace in right.traces[1:]]
    assert roles == ["solver", "verifier", "corrector", "verifier", "corrector", "verifier"]
    assert all(map(settings.rollout.trains, right.traces[1:])) and settings.rollout.limits.turns == len(roles)


# Claims

MENDED, PASSED = ((0, 0, 4), (1, 1, 16)), ((1, 1, 16),)
MADE_UP = {  # solved, tokens, verdicts of odd and even problems
    "before": (0.60, 330, (((0, 1, 5),), ((1, 1, 5),))),
    "main": (0.90, 500, (MENDED, PASSED)),
    "solver-only": (0.50, 160, ((), ())),
    "vote-3": (0.60, 480, ((), ())),
    "vote-4": (0.70, 640, ((), ())),
    "vote-6": (0.95, 960, ((), ())),
    "choice-2": (0.65, 510, ((), ())),
    "choice-3": (0.75, 770, ((), ())),
    "fresh": (0.88, 600, (MENDED, PASSED)),
    "shared": (0.70, 400, (MENDED, PASSED)),
}


def made_up(**changed: dict) -> Rows:
    found: Rows = {}
    for name in DESIGN.planned():
        label = name.partition(",")[0]
        if label in MADE_UP:
            values = dict(zip(("solved", "tokens", "judged"), MADE_UP[label], strict=True)) | changed.get(label, {})
            found[name] = [made(name, i, seed, **values) for seed in DESIGN.seeds(label) for i in range(200)]
    return found


def made(name: str, i: int, training: int, *, solved: float, tokens: int, judged: tuple) -> Outcome:
    drawn = (37 * i + 11 * max(training, 0)) % 100
    return Outcome(name, training, f"sudoku-six/{i}", drawn < 100 * solved, tokens, tokens, judged=judged[i % 2])


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "holds holds holds holds"),
        ({"main": {"solved": 0.6}}, "fails holds fails fails"),
        ({"main": {"tokens": 700}}, "fails holds holds holds"),  # a vote of six is then the rival
        ({"choice-2": {"solved": 0.87}}, "fails holds holds holds"),
        ({"main": {"tokens": 1000}}, "not run holds holds holds"),
        ({"main": {"judged": (((0, 1, 16),), PASSED)}}, "holds fails undecided holds"),
        ({"main": {"judged": (((0, 0, 4), (1, 1, 6)), ((1, 1, 6),))}}, "holds fails holds holds"),
        ({"main": {"judged": (((1, 0, 4), (0, 0, 16)), PASSED)}}, "holds fails fails holds"),
        ({"shared": {"solved": 0.9}}, "holds holds holds fails"),
    ],
)
def test_claims_follow_from_outcomes(changed: dict, expected: str):
    assert " ".join(map(state, DESIGN.claims.decided(made_up(**changed)).values())) == expected


def test_balanced_accuracy_by_hand():
    # Of four right solutions three pass, of two wrong ones one is rejected.
    judged = [((1, 1, 1), (1, 1, 1)), ((1, 0, 1),), ((1, 1, 1), (0, 0, 1)), ((0, 1, 1),)]
    rows = [Outcome("", seed, f"p{i}", True, 1, 1, judged=one) for i, one in enumerate(judged) for seed in (0, 1)]
    assert balanced(rows).mean == pytest.approx((3 / 4 + 1 / 2) / 2)
    twice = balanced([replace(one, judged=one.judged * 2) for one in rows])
    assert twice.low == pytest.approx(balanced(rows).low), "a problem counts as one, however often it was judged"


def test_the_claims_are_possible_and_a_careless_verifier_refutes_one():
    good = Skill(0.06), Skill(0.05, 0.97), Skill(0.045), Skill(0.055, 0.9)
    found = simulated(10, *good, problems=40)
    states = {name: state(conditions) for name, conditions in DESIGN.claims.decided(found).items()}
    assert states["b"] == "holds" and "fails" not in states.values()
    careless = simulated(10, good[0], replace(good[1], misread=0.08), *good[2:], problems=40)
    assert state(DESIGN.claims.decided(careless)["b"]) == "fails"
    assert marsrl_can_pay.SCENARIOS


def test_players_err_as_their_skill_says():
    clues = PROBLEM.data["clues"]
    cells, players = empty(clues), Players(clues, Skill(0.5, misread=0.0, spread=0.0), "p", 0)
    grids = [players.solved() for _ in range(1_000)]
    assert players.tokens == 1_000 * (11 * len(cells) + 53) and all(grid[r][c] for grid in grids[:9] for r, c in cells)
    wrong = [Counter(grid[r][c] for grid in grids if grid[r][c] != RIGHT[r][c]) for r, c in cells]
    errors = sum(one.total() for one in wrong)
    assert errors / (1_000 * len(cells)) == pytest.approx(0.5, abs=0.02)
    assert sum(max(one.values()) for one in wrong) / errors == pytest.approx(
        0.6, abs=0.03
    )  # a half, and a fifth of one
    players.tokens = 0
    unit, count = players.bad_unit(RIGHT)
    assert unit is None and players.tokens == pytest.approx(10.3 * count + 14)
    hard = [Players(clues, Skill(0.1), "p", training) for training in (0, 1)]
    counts = [sum(one.solved()[r][c] != RIGHT[r][c] for _ in range(300)) for one in hard for r, c in cells]
    first, second = counts[: len(cells)], counts[len(cells) :]
    assert max(first) > 5 * min(first)
    assert second[first.index(max(first))] > fmean(second), "a hard cell is hard for each training"


def test_players_take_the_first_solution_if_none_passes_and_vote_on_those_that_pass(monkeypatch):
    players = Players(PROBLEM.data["clues"], Skill(0.1), "p", 0)
    drawn = iter([WRONG, *[RIGHT] * 5, WRONG, WRONG, WRONG, RIGHT, WRONG, WRONG, RIGHT])
    monkeypatch.setattr(Players, "solved", lambda self: next(drawn))
    monkeypatch.setattr(Players, "bad_unit", lambda self, grid: ("A", 1))
    monkeypatch.setattr(Players, "corrected", lambda self, grid, unit: WRONG)
    solved, judged = players.loop(True)
    assert not solved and judged == ((False, False, 1), *[(True, False, 1)] * 5)
    assert players.loop(False)[1][1:] == ((False, False, 1),) * 5, "a corrector, and no new attempt"
    monkeypatch.setattr(Players, "bad_unit", lambda self, grid: (None if grid == RIGHT else "A", 1))
    assert [players.voted(PROBLEM, 3, verified) for verified in (True, False)] == [True, False]


# The program


def step(i: int, flat: int = 4, longer: float = 1.0, right: float = 0.0, noise: float = 0.0) -> dict:
    tokens = {"solver": 150.0, "verifier-1": None if i == 0 else 50 + longer * i}
    return {
        "groups": 8,
        "flat_groups": flat,
        "tokens": tokens,
        "right": {"solver": 0.4 + right * i + noise * (i % 2)},
        "sampled_tokens": 9600,
    }


@pytest.mark.parametrize(
    ("changed", "met"),
    [
        ({}, True),
        ({"flat": 6}, False),
        ({"longer": 0.0}, False),
        ({"right": -0.02}, False),
        ({"right": -0.005, "noise": 0.2}, True),
    ],
)
def test_the_gate_reads_metrics(changed: dict, met: bool):
    assert passed(experiment.gate(None, [step(i, **changed) for i in range(12)])) is met
    assert not passed(experiment.gate(None, [step(0), step(0)])), "no verifier could read a solution"


def test_other_trainings_sample_as_many_tokens(tmp_path: Path, monkeypatch):
    e = Experiment(DESIGN, SIZES["half"], tmp_path, "smollm2", None, "cpu", "local", 1, (), False)
    with pytest.raises(experiment.UserError, match="run these first"):
        experiment.settings(e, "solver-only")
    file = tmp_path / "runs" / "gate" / "metrics.jsonl"
    file.parent.mkdir(parents=True)
    unread = step(3)
    unread["tokens"]["solver"] = None
    lines = [step(0) | {"sampled_tokens": 96_000}, step(1), step(2), unread]  # the later half counts
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(experiment, "ended", lambda *given: [played(Sampled(**LOOP), (SOLVER, "t " * 300))])
    assert experiment.settings(e, "solver-only")[-1] == "rollout.problems=8"  # 9,600 tokens of 8 times 150
    assert experiment.settings(e, "shared")[-1] == "rollout.problems=4"
    assert not any("problems" in one for one in experiment.settings(e, "main"))


def test_a_plan_has_the_adapters_and_settings_of_its_roles(capsys):
    assert stages.main(DESIGN, ["plan", "--out", "out"]) == 0
    found = dict(re.findall(r"^(\S+): orgthink (.*)$", capsys.readouterr().out, re.MULTILINE))
    assert "adapters=roles" in found["main-0"] and "rollout.strategy=balanced" in found["main-0"]
    assert "adapters=roles" in found["shared-0"] and "rollout.strategy" not in found["shared-0"]
    assert "papers.variants:roles:out/adapters/main-1,out/adapters/solver-only-1 " in found["other-solver-1-0.6"]
    assert "fresh=papers.marsrl_variants:Fresh" in found["fresh-0-0.6"] and "rounds=6" in found["main-0-0.6"]
    assert "samples=2 verified=true" in found["choice-2-0-0.6"] and "verified" not in found["vote-3-0-0.6"]
    assert "out/adapters/cold-start " in found["solver-before--1-0.6"] and "--max-tokens 224" in found["before--1-0.6"]


@pytest.mark.thorough
def test_a_tiny_experiment_runs_to_its_end(tmp_path: Path, capfd, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # of merged adapters

    def child(self: Experiment, name: str, arguments: list, *, allowed: tuple[int, ...] = (0,)) -> None:
        assert orgthink_main([str(one) for one in arguments]) in allowed, name

    monkeypatch.setattr(Experiment, "child", child)  # the same commands in this process: a minute less
    monkeypatch.setattr(stages, "together", lambda jobs, work: [one() for one in work])
    model, out = tiny_model(tmp_path / "llama", "bytes", context=4096), tmp_path / "out"
    given = ["--size", "tiny", "--model", str(model), "--out", str(out)]
    rewards = Path(__file__).with_name("varied_role_reward.py").resolve()

    def run(*asked: str, reward: str = "VariedRole") -> int:
        return stages.main(DESIGN, ["run", *asked, *given, "--set", f"reward.kind={rewards}:{reward}"])

    assert run("cold-start") == 0
    assert run("gate") == 1, "a random model does not pass"
    assert run("main:0", "solver-only:0", "accepted:0") == run("shared:0", reward="VariedEpisode") == 0
    roles = {
        name: {one.name for one in (out / "adapters" / name).iterdir() if one.is_dir()}
        for name in ("main-0", "solver-only-0")
    }
    before, after = (read_tensors(out / "adapters" / name / WEIGHTS) for name in ("cold-start", "main-0/solver"))
    assert any((after[name] != before[name]).any() for name in before)
    assert roles == {"main-0": {"solver", "verifier", "corrector"}, "solver-only-0": {"solver"}}
    evaluated = ("before", "main", "solver-only", "vote-3", "choice-2", "fresh", "shared", "accepted", "other-solver")
    assert run(*(f"evaluate:{label}" for label in evaluated)) == 0
    capfd.readouterr()
    assert stages.main(DESIGN, ["summary", *given[2:]]) == 0
    text = capfd.readouterr().out
    for label in evaluated:
        assert f"| {label}, T = 0.6 | 1 of {len(DESIGN.seeds(label))} |" in text, label
