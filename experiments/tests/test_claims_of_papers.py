"""The claims of MarsRL and ParaManager: each number is found in their arenas and turned the right way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from orgthink_pocket.base.searches import everybody

from experiments.marsrl.evidence import trained_parts as parts
from experiments.marsrl.evidence.claims import TASKS, error_ratio, pipeline_claims
from experiments.marsrl.evidence.pipeline_steps import pipeline_steps
from experiments.marsrl.evidence.results import EVIDENCE as MARSRL
from experiments.marsrl.evidence.trained_parts import STREAMS, VERIFIERS, trained_parts
from experiments.paramanager.evidence.claims import TARGETS
from experiments.paramanager.evidence.results import EVIDENCE as PARAMANAGER
from experiments.paramanager.evidence.routing import SAMPLED, shares_of_calls
from experiments.paramanager.evidence.starts import starts
from experiments.shared import evidence as module
from experiments.shared.claims import UNKNOWN, VOID, Claim, over_seeds
from experiments.shared.evidence import Evidence, Options
from orgthink.arena.config import Arena, read_arena
from orgthink.arena.preparing import folder_of, training
from orgthink.episode import Episode, Grade, Origin, Problem, Span, Trace
from orgthink.errors import UserError
from orgthink.evaluation import RoleSpec
from orgthink.organizations.prompts import style_named
from orgthink.organizations.workflow_graph import AgentNode
from orgthink.organizations.workflow_json import read_graph
from orgthink.store import RunFolder
from orgthink.tasks import task_named

PLACES = "".join(f"<!-- {name} -->\n<!-- /{name} -->\n" for name in ("claims", "times"))
PAPERS = {"marsrl": MARSRL, "paramanager": PARAMANAGER}
BETTER = {"mean": -0.2, "low": -0.3, "high": -0.1, "n": 3}
"""A method that is right in 20 points less than the reference."""
RIGHT = {"mean": 0.6, "low": 0.5, "high": 0.7, "n": 3}
SHARES = [{"members": {"quick": 0.4, "thorough": 0.6}, "best": share} for share in (0.2, 0.3)]
REPAIRS = dict.fromkeys(("difference", "verifier", "vote"), RIGHT)
"""What is measured in the episodes of the second sample of trainings."""
MEASURED = {
    **{name: {"shares": dict.fromkeys(SAMPLED, SHARES)} for name in ("routing", "reordered-routing")},
    **dict.fromkeys(("repairs", "repairs-paired", "repairs-anew"), REPAIRS),
    "starts": {"started": [0.7, 0.9], "started-bare": [0.1, 0.2]},
    "beside-strangers": {"ratio": {"paramanager": {"mean": 1.0, "low": 0.95, "high": 1.05, "n": 3}}},
    "one-solution": dict.fromkeys(("system", "fresh"), RIGHT),
    "trained-parts": {
        "verifiers": {name: [{"quality": 0.5}, {"quality": 0.6}] for name in VERIFIERS},
        "over_stronger": RIGHT,
        "lengths": {stream: [1.0, 2.0] for stream in STREAMS},
    },
}
"""What is measured in the runs of ParaManager and MarsRL."""
BESIDE = {
    "paramanager": {f"{id_}{mark}" for id_ in ("P3", "P7", "P11") for mark in ("", " (reordered)")},
    "marsrl": {*(f"M4{mark}" for mark in TASKS.values()), "M1 (one solution, anew)", "M1 (eleven trainings)"},
}
"""Rows that stand beside a claim: no workflow was searched there, calls are not counted by kind and size, whole systems
are compared instead of repairs, and what was known or chosen afterwards decides nothing."""


def arena_of(evidence: Evidence, name: str) -> Arena:
    return read_arena(evidence.home / name / "arena.toml")


def results_of(arena: Arena, difference: dict[str, float] = BETTER) -> dict[str, Any]:
    """Results in which every method is right in 60 %, and all but the reference in some points less than it."""
    return {
        "tables": {
            "uncapped": [
                {"method": name, "group": one.group, **dict.fromkeys(("accuracy", "tokens", "cost_units"), RIGHT)}
                for name, one in arena.methods.items()
            ]
        },
        "differences": {
            "uncapped": [
                {"method": name, "accuracy": difference, "seconds_ratio": RIGHT}
                for name in arena.methods
                if name != arena.reference
            ]
        },
        "choices": [
            {"method": name, "cap": "uncapped", "tried": [{"accuracy": 0.5}]}
            for name, one in arena.methods.items()
            if one.grid
        ],
    }


@pytest.mark.parametrize("paper", PAPERS)
def test_every_number_of_a_claim_is_found_in_the_arenas(paper: str) -> None:
    evidence = PAPERS[paper]
    found: dict[str, Any] = {name: results_of(arena_of(evidence, name)) for name in (*evidence.arenas, *evidence.extra)}
    rows = [claim.row() for claim in evidence.claims(found | MEASURED)]
    assert len({row["id"] for row in rows}) == len(rows) >= 8
    for row in rows:
        assert row["measured"] is not None, row
    assert {row["id"] for row in rows if row["holds"] is None} == BESIDE[paper]


@pytest.mark.parametrize("paper", PAPERS)
def test_who_is_right_more_often_wins_and_who_is_not_does_not(paper: str) -> None:
    evidence = PAPERS[paper]
    worse = {"mean": 0.01, "low": -0.1, "high": 0.12, "n": 3}
    for difference, holds in ((BETTER, True), (worse, False)):
        found = {name: results_of(arena_of(evidence, name), difference) for name in (*evidence.arenas, *evidence.extra)}
        decided = {claim.id: claim.row() for claim in evidence.claims(found)}
        for id_ in (
            ("M1 (trained)", "M3", "M3, repeated", "M5", "M1 (base, anew)", "M1 (one attempt, anew)")
            if paper == "marsrl"
            else (
                "P2",
                "P4 (vote)",
                "P2 (reordered)",
                "P8 (accepted)",
                "P3 (searched)",
                "P2 (shuffled)",
                "P12",
                "P13",
            )
        ):
            assert decided[id_]["holds"] is holds, decided[id_]
            assert decided[id_]["measured"] == -difference["mean"], "the reference - the other"


def test_each_part_of_the_pipeline_is_compared_as_it_is_put_in() -> None:
    results = results_of(arena_of(MARSRL, "pipeline"))  # without segments, without POIS, with masking: 20 points less
    decided = {claim.id: claim.row() for claim in pipeline_claims(results)}
    assert [decided[f"M9 ({what})"]["measured"] for what in ("segments", "POIS", "masking")] == [0.2, 0.2, -0.2]
    assert [row["holds"] for row in decided.values()] == [True, True, False]


def test_fresh_attempts_are_compared_at_no_more_tokens_than_the_corrector() -> None:
    def decided(tokens: Mapping[str, float]) -> dict[str, Claim]:
        found = {name: results_of(arena_of(MARSRL, name)) for name in ("sparse", "paired")}
        for row in found["paired"]["tables"]["uncapped"]:
            row["tokens"] = {"mean": tokens.get(row["method"], 1.0), "low": 0.0, "high": 1.0, "n": 3}
        return {claim.id: claim for claim in MARSRL.claims(found)}

    taken = {"marsrl": 500.0, "fresh-2": 400.0, "fresh-3": 480.0, "fresh-corrector": 600.0}
    equal = decided(taken)["M4 (equal tokens)"]
    assert "fresh-3" in equal.text and equal.row()["holds"]
    nearest = decided(taken | {"marsrl": 300.0})["M4 (equal tokens)"]
    assert "fresh-2 (which takes 100 more" in nearest.text and nearest.row()["holds"] is None, "none takes as few"


def test_a_system_that_takes_more_tokens_than_the_vote_decides_nothing_beside_it() -> None:
    def decided(tokens: Mapping[str, float]) -> dict[str, Claim]:
        found = results_of(arena_of(MARSRL, "anew"))
        for row in found["tables"]["uncapped"]:
            row["tokens"] = {"mean": tokens.get(row["method"], 1.0), "low": 0.0, "high": 1.0, "n": 5}
        return {claim.id: claim for claim in MARSRL.claims({"anew": found} | MEASURED)}

    taken = {"marsrl": 500.0, "fresh-corrector": 700.0, "vote-untrained": 600.0}
    one = decided(taken)
    assert one["M1 (base, anew)"].row()["holds"] and one["M12"].row()["holds"] is None
    assert decided(taken | {"vote-untrained": 700.0})["M12"].row()["holds"], "as many are enough"


def test_claims_of_a_task_without_errors_are_void() -> None:
    def caveats(right: float) -> set[str]:
        found = results_of(arena_of(MARSRL, "anew"))
        for row in found["tables"]["uncapped"]:
            row["accuracy"] = {"mean": right, "low": right - 0.05, "high": right + 0.05, "n": 5}
        return {
            claim.caveat
            for claim in MARSRL.claims({"anew": found} | MEASURED)
            if "anew" in claim.id and "B4" not in claim.id
        }

    assert caveats(0.9) == {VOID} and caveats(0.6) == {""}


def test_errors_that_are_left_are_a_share_of_those_of_the_other() -> None:
    results = results_of(arena_of(MARSRL, "sudoku"))  # right in 60 and 80 %: half of the errors are left
    ratio = error_ratio(results, "untrained")
    assert (ratio.mean, ratio.low, ratio.high) == pytest.approx((0.5, 0.25, 0.75))
    assert error_ratio(results, "nobody") == UNKNOWN


@pytest.mark.parametrize("paper", PAPERS)
def test_settings_are_chosen_on_other_problems_than_are_trained_on(paper: str) -> None:
    evidence = PAPERS[paper]
    arena = arena_of(evidence, evidence.arenas[0])
    assert arena.development is not None and arena.development.task.endswith("@0/2")
    tasks = [
        job.settings.rollout.task
        for job in (training(preparation, 0).job for preparation in arena.preparations.values())
        if hasattr(job.settings, "rollout")
    ]
    assert tasks and {task.partition("@")[2] for task in tasks} == {"1/2"}
    assert {task.partition("@")[0] for task in tasks} == {arena.task}


def test_the_pool_of_the_arena_is_that_of_the_trainings() -> None:
    for name, training_name in (
        ("pool", "paramanager"),
        ("reordered", "reordered"),
        ("searched", "reordered"),
        ("shuffled", "shuffled"),
    ):
        arena = arena_of(PARAMANAGER, name)
        rollout = training(arena.preparations[training_name], 0).job.settings.rollout
        assert list(rollout.models) == list(arena.pool), "the manager knows them by their order"
        assert members_of(arena) == sampling_of(rollout.models)
        trained, shared = rollout.organization.settings, {"suite": {"corpus": "ledger"}, "response_tokens": 32}
        for method in (one for key, one in arena.methods.items() if key != "serial"):
            if method.organization == "paramanager":
                given = {**shared, **method.settings, "calls": 4, "pool": dict.fromkeys(arena.pool, "")}
                assert given == {key: value for key, value in trained.items() if key != "faults"}


def test_under_each_id_of_the_unseen_pool_is_another_member() -> None:
    seen, unseen = arena_of(PARAMANAGER, "reordered"), arena_of(PARAMANAGER, "unseen")
    assert members_of(seen) == members_of(unseen) and (seen.task, seen.seed) == (unseen.task, unseen.seed)
    assert sum(first == second for first, second in zip(seen.pool, unseen.pool, strict=True)) == 0
    assert seen.preparations["reordered"] == unseen.preparations["reordered"]


def test_strangers_have_no_name_and_no_sampling_of_the_members_that_were_trained_with() -> None:
    seen, strangers = arena_of(PARAMANAGER, "shuffled"), arena_of(PARAMANAGER, "strangers")
    assert (seen.task, seen.seed, len(seen.pool)) == (strangers.task, strangers.seed, len(strangers.pool))
    assert not seen.pool.keys() & strangers.pool.keys()
    alike = [one for one in members_of(strangers).values() if one in members_of(seen).values()]
    assert alike == [("pocket-base", 8, 0.0)], "only the one that never ends"
    assert seen.preparations["shuffled"] == strangers.preparations["shuffled"]
    managers = [one for one in strangers.methods.values() if one.organization == "paramanager"]
    assert {one.settings["aliases"] for one in managers} == {"shuffled"}


def test_the_workflow_is_searched_beside_the_members_with_as_many_episodes_as_reinforcement_learning() -> None:
    arena = arena_of(PARAMANAGER, "searched")
    search, learning = (training(arena.preparations[name], 0).job.settings for name in ("workflow", "reordered"))
    assert {**sampling_of(search.models)} == {
        name: (model, tokens, temperature or 0.01)
        for name, (model, tokens, temperature) in sampling_of(learning.rollout.models).items()
        if name != "silent"
    } | {"silent": ("pocket-base", 8, 0.0)}
    assert (search.task, learning.rollout.task) == (f"{arena.task}@0/2", f"{arena.task}@1/2")
    episodes = (len(search.graphs) + search.steps) * search.problems
    assert episodes == learning.steps * learning.rollout.problems * learning.rollout.group
    search.require()


def test_a_vote_of_everybody_asks_every_member_once() -> None:
    for name in ("searched", "shuffled"):
        graph = read_graph(json.loads((PARAMANAGER.home / "everybody.json").read_text()))
        assert graph == everybody()
        asked = [node.model for node in graph.nodes.values() if isinstance(node, AgentNode)]
        assert sorted(asked) == sorted(arena_of(PARAMANAGER, name).pool)


def members_of(arena: Arena) -> dict[str, tuple[str | None, int | None, float]]:
    return {name: (one.model, one.max_tokens, round(one.temperature or 0.0, 1)) for name, one in arena.pool.items()}


def sampling_of(models: Mapping[str, RoleSpec]) -> dict[str, tuple[str | None, int | None, float]]:
    return {
        name: (role.engine.model, role.sampling.max_tokens, role.sampling.temperature) for name, role in models.items()
    }


def test_cost_follows_the_target_only_if_it_rises_with_it() -> None:
    def decided(*costs: float) -> dict[str, Any]:
        results = results_of(arena_of(PARAMANAGER, "reordered"))
        for row in results["tables"]["uncapped"]:
            if row["method"] in TARGETS:
                mean = costs[TARGETS.index(row["method"])]
                row["cost_units"] = {"mean": mean, "low": mean - 0.1, "high": mean + 0.1}
        found = {"pool": results_of(arena_of(PARAMANAGER, "pool")), "reordered": results}
        return {claim.id: claim.row() for claim in PARAMANAGER.claims(found)}["P6"]

    assert decided(2.0, 2.5, 3.0, 4.0)["holds"] and decided(2.0, 2.5, 3.0, 4.0)["measured"] == 0.5
    assert decided(2.0, 2.5, 3.0, 4.0)["low"] == pytest.approx(1.9 / 4.1)
    assert decided(3.0, 3.1, 3.2, 4.0)["holds"] is False, "three quarters"
    assert decided(2.0, 3.5, 3.0, 4.0)["holds"] is False, "it does not rise"


def test_an_unseen_pool_and_a_start_are_measured_against_their_own() -> None:
    found = {name: results_of(arena_of(PARAMANAGER, name)) for name in PARAMANAGER.arenas}
    for row in found["unseen"]["tables"]["uncapped"]:
        row["accuracy"] = {"mean": 0.3, "low": 0.2, "high": 0.4}
    decided = {claim.id: claim.row() for claim in PARAMANAGER.claims(found | MEASURED)}
    assert decided["P9"]["measured"] == 0.5 and decided["P9"]["holds"] is False
    assert (decided["P9"]["low"], decided["P9"]["high"]) == pytest.approx((0.2 / 0.7, 0.4 / 0.5))
    paired = decided["P9 (shuffled)"]
    assert (paired["measured"], paired["low"], paired["high"], paired["holds"]) == (1.0, 0.95, 1.05, True)
    bare = {claim.id: claim.row() for claim in PARAMANAGER.claims(found)}
    assert bare["P9 (shuffled)"]["measured"] is None, "two shares of the same problems have no ratio but a paired one"
    steps = over_seeds([0.7 - 0.1, 0.9 - 0.2])
    assert [decided["P10"][end] for end in ("measured", "low", "high")] == [steps.mean, steps.low, steps.high]


def test_a_start_is_the_last_ten_steps_of_each_training(tmp_path: Path) -> None:
    arena = arena_of(PARAMANAGER, "reordered")
    for name, first in (("started", 0.0), ("started-bare", 0.5)):
        folder = folder_of(tmp_path / "arena", arena, name, 0)
        run = RunFolder.create(folder, "train", training(arena.preparations[name], 0))
        rewards = [first] * 3 + [first + 0.25] * 10
        (run.path / "metrics.jsonl").write_text("".join(f'{{"task_reward": {reward}}}\n' for reward in rewards))
    assert starts(tmp_path / "arena", arena) == {"started": [0.25] * 10, "started-bare": [0.75] * 10}


def test_shares_of_calls_are_counted_by_member_and_against_the_best_one_for_the_part() -> None:
    calls = "".join(
        f'<tool_call>\n{{"name": "standard_reasoner", "arguments": {{"model_id": "{model}"}}}}\n</tool_call>\n'
        for model in ("m1", "m2", "m2", "m9")
    )
    trace = Trace("manager", "manager", None, (Span(Origin.SAMPLED, calls, 9),))
    problem = Problem("countdown-mini-two/1", "countdown-mini-two", "…")
    episode = Episode("1", problem, "paramanager", 4, (trace,))
    found = shares_of_calls([episode], ("quick", "thorough"), {"countdown-mini-two": "thorough"})
    assert found["members"] == pytest.approx({"quick": 1 / 3, "thorough": 2 / 3}), "m9 is nobody"
    assert found["best"] == pytest.approx(2 / 3)


def test_a_mean_over_trainings_has_students_interval() -> None:
    found = over_seeds([0.1, 0.2, 0.3])
    assert (found.mean, found.low, found.high) == pytest.approx((0.2, 0.2 - 0.2484, 0.2 + 0.2484), abs=1e-3)
    assert over_seeds([0.5]) == UNKNOWN


def test_an_extra_arena_counts_where_it_has_results_and_runs_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(module, "run_arena", lambda options: ran.append(options.config.parent.name) or 0)
    home = tmp_path / "paper" / "evidence"
    shutil.copytree(PARAMANAGER.home / "pool", home / "first")
    seen: list[set[str]] = []
    evidence = Evidence(home, ("first",), lambda found: seen.append(set(found)) or [], extra=("large",))
    evidence.paper.write_text("{}")
    (home / "README.md").write_text(PLACES)
    assert evidence.make(Options()) == 0
    shutil.copytree(PARAMANAGER.home / "pool", home / "large")
    assert evidence.make(Options(only=("large",))) == 0
    assert (ran, seen) == (["first", "large"], [{"first"}, {"first", "large"}])


def test_an_arena_whose_model_has_to_be_made_first_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def run(options: Any) -> int:
        ran.append(options.config.parent.name)
        if ran[-1] == "first":
            raise UserError("unknown model 'runs/missing'")
        return 0

    monkeypatch.setattr(module, "run_arena", run)
    (tmp_path / "paper" / "evidence").mkdir(parents=True)
    evidence = Evidence(tmp_path / "paper" / "evidence", ("first", "second"), lambda found: [])
    assert evidence.make(Options()) == 2 and ran == ["first", "second"]
    assert capsys.readouterr().err == "orgthink: first: unknown model 'runs/missing'\n"


def test_what_is_measured_in_episodes_is_stored_and_read_where_the_runs_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "paper" / "evidence"
    for name in ("first", "pool"):
        shutil.copytree(PARAMANAGER.home / "pool", home / name)
        (home / name / "routing.json").unlink()
    seen: list[dict[str, Any]] = []

    def claims(found: Mapping[str, Any]) -> list[Claim]:
        seen.append(dict(found))
        return []

    evidence = Evidence(
        home, ("first", "pool"), claims, {"routing": ("pool", lambda runs, arena: {"reference": arena.reference})}
    )
    evidence.paper.write_text("{}")
    (home / "README.md").write_text(PLACES)
    evidence.write()
    assert "routing" not in seen[-1], "neither runs nor a stored measure"
    runs = tmp_path / "runs" / "evidence-paper" / "pool"
    (runs / "evaluations").mkdir(parents=True)
    evidence.write()
    shutil.rmtree(runs)
    evidence.write()
    assert seen[-2]["routing"] == seen[-1]["routing"] == {"reference": "paramanager"}
    assert (home / "pool" / "routing.json").is_file() and not (home / "first" / "routing.json").exists()
    (runs / "evaluations").mkdir(parents=True)
    replace(evidence, measures={"routing": ("pool", lambda runs, arena: None)}).write()
    assert seen[-1]["routing"] == {"reference": "paramanager"}, "where nothing can be measured, what is stored counts"


def test_steps_of_the_pipeline_are_read_off_the_runs(tmp_path: Path) -> None:
    """Two steps: one of 30 trained tokens and 10 masked ones, an empty one."""
    arena = replace(arena_of(MARSRL, "pipeline"), seeds=(0,))
    seconds = {"rollout": 3.0, "train": 1.0}
    for name in arena.preparations:
        with RunFolder.create(folder_of(tmp_path, arena, name, 0), "train", {}).journal() as journal:
            journal.log(age=1.5, age_max=3, masked_tokens=10, trained_tokens=30, wait=8.0, seconds=seconds)
            journal.log(age=None, age_max=None, masked_tokens=0, trained_tokens=0, wait=None, seconds=seconds)
    found = pipeline_steps(tmp_path, arena)
    means = {"age": 1.5, "age_max": 3, "masked": 0.25, "rollout": 3.0, "train": 1.0, "wait": 8.0}
    assert found == {name: [means] for name in arena.preparations if name != "pipeline-start"}


def test_verifiers_lengths_and_seconds_are_read_off_the_runs_of_marsrl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verifier that finds one of two errors and alarms once in two; outputs that get longer by 100 tokens."""
    arena = replace(arena_of(MARSRL, "ablations"), seeds=(0,))
    runs = tmp_path / "ablations"
    monkeypatch.setattr(parts, "_episodes", lambda _, name, __: reviewed([True, name == "over-stronger"]))
    with RunFolder.create(folder_of(runs, arena, "marsrl", 0), "train", {}).journal() as journal:
        for step in range(20):
            journal.log(tokens=dict.fromkeys(STREAMS, 100 * (step >= 10)))
    found = trained_parts(runs, arena)
    assert found["verifiers"]["verify-random"] == [{"recall": 0.5, "false_alarms": 0.5, "quality": 0.25}]
    assert found["over_stronger"]["mean"] == 0.5 and found["lengths"] == {one: [100.0] for one in STREAMS}


def reviewed(right: list[bool]) -> list[Episode]:
    """Four problems: two solutions are wrong, one of them is found, and one of the others is called wrong. Which final
    answers are right matters where the solver is a stronger one."""
    verdicts = style_named("pocket-base").verdicts
    words = [verdicts.wrong[0], verdicts.correct[0]] * 2
    found = []
    for number, (answer, word) in enumerate(zip(("3", "3", "2", "2"), words, strict=True)):
        problem = next(task_named("arithmetic-mini").problems("test", number))
        solution = str(problem.data["value"] + int(answer == "3"))
        solver = Trace("0/solution-1", "solver", "0", (), returned=f"<ANSWER> {solution} </ANSWER>")
        verifier = Trace("0/verification-1", "verifier", "0", (), returned=f"{verdicts.field} : {word}")
        grade = Grade(int(right[number % 2]), 1)
        traces = (Trace("0", "controller", None, ()), solver, verifier)
        found.append(Episode(f"{number}", problem, "reviewed", 4, traces, answer=solution, grade=grade))
    return found
