"""Claims as rows: what was measured decides them, and what was not measured decides nothing."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import replay
from benchmarks.models import CONFIG, random_model
from experiments.arena.results import Options
from experiments.asyncthink.evidence import memory_bound as replays
from experiments.asyncthink.evidence import on_gpu
from experiments.asyncthink.evidence.claims import ONCE_MORE, claims
from experiments.asyncthink.evidence.efficiency import efficiency
from experiments.asyncthink.evidence.links import KINDS, PAIRS
from experiments.asyncthink.evidence.results import DECISIONS, EVIDENCE
from experiments.shared.claims import (
    AMENDED,
    LETTER,
    UNKNOWN,
    VOID,
    Claim,
    Measured,
    best,
    best_held_out,
    claims_table,
    read_with,
)
from experiments.shared.script import with_claims
from orgthink.arena.config import read_arena
from orgthink.arena.preparing import training
from orgthink.engines.local.engine import LocalEngine
from orgthink.episode import Episode, Grade, Origin, Problem, Span, Trace
from orgthink.scale.simulation.recorded import recorded
from orgthink.store import RunFolder

NAMES = (*EVIDENCE.arenas, *EVIDENCE.extra)
ARENAS = {name: read_arena(EVIDENCE.home / name / "arena.toml") for name in NAMES}
LOW = {"mean": 0.4, "low": 0.3, "high": 0.5, "n": 3}
COMPARED = dict.fromkeys(("right_gap", "forked_gap", "divides_gap", "path_ratio", "path_ratio_right"), LOW)
NUMBERS = {
    **dict.fromkeys(("right", "path", "forked", "joined", "divides"), LOW),
    "forked_by_seed": [0.3, 0.5],
    "joined_by_seed": [0.3, 0.5],
    **COMPARED,
}


def arena_results(name: str) -> dict[str, Any]:
    """Results of an arena in which every number is 0.4 [0.3, 0.5]."""
    arena = ARENAS[name]
    quantities = dict.fromkeys(
        ("accuracy", "forked", "concurrency", "critical_path_steps", "critical_path_ratio", "seconds_ratio"), LOW
    )
    rows = [{"method": method, "group": each.group, **quantities} for method, each in arena.methods.items()]
    return {
        "tables": {"uncapped": rows},
        "differences": {"uncapped": [row for row in rows if row["method"] != arena.reference]},
        "choices": [
            {"method": method, "cap": "uncapped", "tried": [{"accuracy": 0.9 if method == "vote" else 0.8}]}
            for method in arena.methods
        ],
        "preparations": [],
        "conditions": {"hardware": {"cpu": "a processor", "cores": 2}, "commit": "abc"},
    }


def decided() -> dict[str, dict[str, Any]]:
    """The claims of such arenas by their number."""
    arenas = {name: arena_results(name) for name in NAMES}
    arenas["efficiency"] = dict.fromkeys(ARENAS["stages"].methods, LOW)
    arenas |= {f"memory-bound-{name}": {"ratios": dict.fromkeys(ARENAS[name].methods, LOW)} for name in ONCE_MORE}
    arenas |= {f"targets-{name}": dict.fromkeys(ARENAS[name].methods, LOW) for name in ONCE_MORE}
    kinds = {kind: dict.fromkeys(ARENAS["linked"].methods, NUMBERS) for kind in KINDS}
    pairs = {f"{first} / {second}": dict.fromkeys(KINDS, COMPARED) for first, second in PAIRS}
    arenas["kinds-linked"] = {**kinds, "pairs": pairs}
    arenas["on-gpu-thrice"] = {"model": "a model", "device": "a GPU", "ratios": {"alone": LOW}}
    return {claim.id: claim.row() for claim in claims(arenas)}


def test_every_number_of_a_claim_is_found_in_the_arenas() -> None:
    for id_, row in decided().items():
        assert row["measured"] is not None, row
        assert (row["holds"] is None) == id_.startswith("A3 (this CPU"), row


def test_the_best_baseline_is_the_best_on_development_problems() -> None:
    assert best(arena_results("countdown"), "baseline") == "vote"
    assert "vote" in decided()["A1"]["claim"]
    with pytest.raises(ValueError, match="chosen its settings"):
        best(arena_results("countdown"), "nobody")


def test_the_strict_best_baseline_is_the_best_on_the_problems_of_the_table() -> None:
    arena = arena_results("averaged")
    row = next(row for row in arena["tables"]["uncapped"] if row["method"] == "former-alone")
    row["accuracy"] = LOW | {"mean": 0.5}
    assert best_held_out(arena, "baseline") == "former-alone" != best(arena, "baseline")
    texts = {claim.id: claim.text for claim in claims({"countdown": arena_results("countdown"), "averaged": arena})}
    assert "former-alone" in texts["A1, six a fourth time"] and "former-alone" in texts["A2, six a fourth time"]
    with pytest.raises(ValueError, match="no method"):
        best_held_out(arena, "nobody")


def test_differences_and_ratios_are_turned_towards_asyncthink() -> None:
    rows = decided()
    assert (rows["A1"]["measured"], rows["A1"]["low"], rows["A1"]["high"]) == (-0.4, -0.5, -0.3)
    assert not rows["A1"]["holds"]
    assert (rows["A2"]["measured"], rows["A2"]["low"], rows["A2"]["high"]) == (1 / 0.4, 1 / 0.5, 1 / 0.3)
    assert rows["A3 (bound by memory, six)"]["measured"] == 0.4, "a replay's ratio is turned already"
    assert rows["A3 (on a GPU, six an eighth time)"]["measured"] == 0.4
    assert rows["A5"]["measured"] == 0.4 and rows["A5"]["holds"], "without the reward - with it: longer"


def test_more_places_shorten_the_path_by_the_means_alone() -> None:
    """Paired ratios and intervals say something else, and decide nothing."""

    def holds(**steps: float | None) -> dict[str, bool | None]:
        countdown = arena_results("countdown")
        for row in countdown["tables"]["uncapped"]:
            row["critical_path_steps"] = LOW | {"mean": steps.get(row["method"].replace("-", "_"))}
        rows = [claim.row() for claim in claims({"countdown": countdown})]
        return {row["id"].removeprefix("A13 "): row["holds"] for row in rows if row["id"].startswith("A13")}

    names = ("(c = 1, 2)", "(c = 2, 4)", "(c = 4, 8)", "(ratio)")
    assert holds(alone=200, two_places=160, asyncthink=120, eight_places=120) == dict.fromkeys(names, True)
    more = holds(alone=200, two_places=250, asyncthink=180, eight_places=181)
    assert list(more.values()) == [False, True, False, True], "c = 2 is above c = 1, and c = 8 above c = 4"
    assert holds(alone=200, two_places=160, asyncthink=121, eight_places=120)["(ratio)"] is False
    unknown = holds(alone=200, two_places=None, asyncthink=120, eight_places=120)
    assert list(unknown.values()) == [None, None, True, None]


def test_a_path_that_is_short_greedy_only_is_a_row_of_its_own() -> None:
    """Some organizers are short at T = 0 alone, and A2 names both."""
    arenas = {name: arena_results(name) for name in ("countdown", "soup")}
    for row in arenas["soup"]["tables"]["uncapped"]:
        if row["method"] == "asyncthink-sampled":
            row["critical_path_steps"] = LOW | {"mean": 0.2}
    rows = {claim.id: claim.row() for claim in claims(arenas)}
    assert rows["A2 (T = 1), six a ninth time"]["measured"] == 0.5 and rows["A2 (T = 1), six a ninth time"]["holds"]
    assert rows["A2 (T = 1)"]["measured"] == 1 and rows["A2 (T = 1)"]["holds"] is False


def test_seconds_beside_other_work_decide_nothing() -> None:
    rows = decided()
    assert rows["A3 (this CPU)"]["measured"] == 1 / 0.4 and rows["A3 (this CPU)"]["holds"] is None
    assert rows["A3 (bound by memory, six)"]["holds"] is True


def test_transfer_needs_more_concurrency_and_a_shorter_path_and_its_control_must_be_flat() -> None:
    rows = decided()
    assert rows["A9 (sums, η)"]["holds"] and not rows["A9 (sums, path)"]["holds"]
    assert not rows["A10 (sums, η)"]["holds"] and rows["A10 (sums, path)"]["holds"]
    assert not rows["A11"]["holds"], "four chains of ten with a Fork"


def test_what_was_not_measured_neither_holds_nor_fails() -> None:
    assert Claim("A0", "a claim", UNKNOWN, "never", lambda *_: False).row()["holds"] is None
    assert Claim("A0", "a claim", Measured(1.0, None, None), "never", lambda *_: False).row()["holds"] is None
    countdown = arena_results("countdown") | {"differences": {}}
    rows = [claim.row() for claim in claims({"countdown": countdown})]
    by_tables = {"A2 (T = 1)", "A4", "A13 (c = 1, 2)", "A13 (c = 2, 4)", "A13 (c = 4, 8)", "A13 (ratio)"}
    assert {row["id"] for row in rows if row["holds"] is not None} == by_tables


def test_arenas_of_one_paper_share_their_trainings() -> None:
    folders = {Options(EVIDENCE.home / name / "arena.toml").folder.parent for name in ARENAS}
    assert len(folders) == 1
    trained = ARENAS["countdown"].preparations
    for arena in ARENAS.values():
        assert arena.prepared_in == "trainings"
        for name, preparation in arena.preparations.items():
            assert trained.get(name, preparation) == preparation


def test_the_claims_stand_in_the_results_of_the_paper_and_on_the_page(tmp_path: Path) -> None:
    evidence = replace(EVIDENCE, home=tmp_path / "evidence")
    (evidence.home / "countdown").mkdir(parents=True)
    evidence.paper.write_text('{"figure5": []}')
    places = "".join(f"<!-- {name} -->\n<!-- /{name} -->\n" for name in ("claims", "times", "decisions"))
    (evidence.home / "README.md").write_text(places)
    evidence.write()
    assert "claims" not in json.loads(evidence.paper.read_text()), "nothing was measured yet"
    (evidence.home / "countdown" / "results.json").write_text(json.dumps(arena_results("countdown")))
    evidence.write()
    found = json.loads(evidence.paper.read_text())
    assert found["figure5"] == [] and {row["id"] for row in found["claims"]} >= {"A1", "A5", "A13 (ratio)"}
    page = (evidence.home / "README.md").read_text()
    assert "| A1 | as right as the best baseline" in page
    assert "| 40.0 % | -40.0 [-50.0, -30.0] | 2.50 [2.00, 3.33] | **no**, **no** |" in page, "the first decision"


def test_a_verdict_is_read_with_its_caveats() -> None:
    claim = Claim("A0", "a claim", Measured(0.3, 0.2, 0.4), "lower end ≤ 0", lambda _, low, __: low <= 0, caveat=LETTER)
    (void,) = read_with(VOID, [claim])
    unknown = replace(void, measured=UNKNOWN)
    lines = claims_table([replace(claim, caveat="").row(), void.row(), unknown.row()]).splitlines()[-3:]
    said = [line.split("|")[-2].strip() for line in lines]
    assert said == ["yes", f"yes, {LETTER}, {VOID}", "not measured"]
    rows = decided()
    assert {id_ for id_, row in rows.items() if not row["caveat"]} >= {"A9 (parts, η)", "A11", "A14"}, "bases that err"
    assert all(VOID in row["caveat"] for id_, row in rows.items() if "six a" in id_)
    caveats = {id_: rows[id_]["caveat"] for id_ in ("A9 (parts, accuracy)", "A9 (sums, accuracy)", "A10 (parts, η)")}
    assert list(caveats.values()) == [LETTER, VOID, LETTER], caveats
    assert all(row["caveat"] == AMENDED for id_, row in rows.items() if id_.startswith("A2") and id_[2:3].isdigit())


def test_every_decision_of_a1_and_a2_is_a_row_of_the_table() -> None:
    marks = [decision.mark for decision in DECISIONS]
    assert [f"A1{mark}" for mark in marks] == [id_ for id_ in decided() if re.match(r"A1(,|$)", id_)]
    assert {decision.arena for decision in DECISIONS} == {"countdown", *ONCE_MORE}


def test_settings_are_chosen_on_other_problems_than_are_trained_on() -> None:
    arena = ARENAS["countdown"]
    assert arena.development is not None and arena.development.task == "countdown-mini@0/2"
    for preparation in arena.preparations.values():
        assert training(preparation, 0).job.settings.rollout.task == "countdown-mini@1/2"


def test_claims_survive_that_the_other_results_are_written_again(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"claims": [1], "figure5": [2]}')
    assert with_claims({"figure5": [3]}, tmp_path / "results.json") == {"figure5": [3], "claims": [1]}
    assert with_claims({"figure5": [3]}, tmp_path / "none.json") == {"figure5": [3]}


def test_a_right_answer_on_half_the_path_counts_twice(tmp_path: Path) -> None:
    """Wrong ones count nothing, however short; targets are the units."""
    arena = replace(ARENAS["stages"], seeds=(0,))
    paths = {"full": ((50, True), (100, True)), "fixed": ((100, True), (10, False))}
    for method in arena.methods:
        folder = RunFolder.create(tmp_path / "evaluations" / method / "uncapped-seed0", "eval", {})
        with folder.journal() as journal:
            for target, (steps, right) in enumerate(paths.get(method, paths["full"])):
                journal.append(episode(target, steps, right))
    found = efficiency(tmp_path, arena)
    assert found["fixed"]["mean"] == pytest.approx(((2 - 1) + (1 - 0)) / 2)
    assert found["no-lessons"]["mean"] == 0


def test_a_replay_takes_the_seconds_of_its_steps_and_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a small model here; the one of the evidence takes a minute an episode."""
    small = partial(random_model, config=CONFIG, dtype=torch.float32)
    monkeypatch.setattr(replays, "random_model", lambda folder, *_: small(folder))
    arena = replace(ARENAS["six"], seeds=(0,))
    for method in (arena.reference, *replays.RIVALS):
        folder = RunFolder.create(tmp_path / "evaluations" / method / "uncapped-seed0", "eval", {})
        with folder.journal() as journal:
            for target in range(2):
                journal.append(episode(target, 10 + target, True))
    found = replays.memory_bound(tmp_path, arena)
    assert all(seconds > 0 for method in found["seconds"].values() for seconds in method.values())
    assert found["ratios"]["alone"]["n"] == 2
    stored = {method: {"0": 1.0, "1": 3.0} for method in ("alone", "alone-untrained")}
    stored[arena.reference] = {"0": 0.5, "1": 1.5}
    (tmp_path / "replayed.json").write_text(json.dumps(stored))
    again = replays.memory_bound(tmp_path, arena)
    assert again["ratios"]["alone"]["mean"] == pytest.approx(0.5) and again["seconds"] == stored, "nothing ran again"


def test_schedules_are_measured_elsewhere_and_then_compared_over_problems_and_trainings(tmp_path: Path) -> None:
    arena = replace(ARENAS["thrice"], seeds=(0, 1))
    for method, steps in ((arena.reference, 10), ("alone", 20)):
        for seed in arena.seeds:
            folder = RunFolder.create(tmp_path / "evaluations" / method / f"uncapped-seed{seed}", "eval", {})
            with folder.journal() as journal:
                for target in range(3):
                    journal.append(episode(target, steps + target, True))
    assert on_gpu.on_gpu(tmp_path, arena) is None, "no GPU has executed them"
    found = on_gpu.schedules(tmp_path, arena, "alone", problems=2)
    assert found[arena.reference] == {seed: {"0": ((0, 0, 10, 1),), "1": ((0, 0, 11, 1),)} for seed in ("0", "1")}
    seconds = {
        method: {seed: {problem: factor * (1 + int(problem)) for problem in "01"} for seed in "01"}
        for method, factor in ((arena.reference, 0.5), ("alone", 1.0))
    }
    (tmp_path / on_gpu.SECONDS).write_text(json.dumps({"device": "a GPU", "seconds": seconds}))
    measured = on_gpu.on_gpu(tmp_path, arena)
    assert measured is not None and measured["device"] == "a GPU"
    ratio = measured["ratios"]["alone"]
    assert [ratio[end] for end in ("mean", "low", "high")] == pytest.approx([0.5, 0.5, 0.5])


def test_a_replay_that_is_not_the_record_gives_no_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "recorded", lambda _: recorded(episode(0, 5, True)))
    engine = LocalEngine.open(random_model(tmp_path, CONFIG, torch.float32))
    with pytest.raises(RuntimeError, match="not the recorded one"):
        asyncio.run(replay.played_again(episode(0, 10, True), engine))


def episode(target: int, steps: int, right: bool) -> Episode:
    """One thinker of so many tokens."""
    problem = Problem(str(target), "countdown-mini", "", data={"target": target})
    spans = (Span(Origin.PROMPT, "1", 1), Span(Origin.SAMPLED, "1", steps))
    trace, grade = Trace("0", "organizer", None, spans), Grade(int(right), 1)
    return Episode(f"{target}", problem, "asyncthink", 4, (trace,), grade=grade)
