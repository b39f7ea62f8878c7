"""Pipeline and whole trajectories: every finished group is handed over once, and chains advance between ticks."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mars_words import Habits, WordEngine, problems_file
from terse import TERSE

from orgthink.engines.engine import EngineError
from orgthink.measure.latency import critical_path, longest_path
from orgthink.record.episode import Episode
from orgthink.record.episode_json import dump, load
from orgthink.training.marsrl.chain import finished_in_step
from orgthink.training.marsrl.pipeline import Chains
from orgthink.training.marsrl.rollout import ROLES, STREAMS, role_of
from orgthink.training.marsrl.settings import MarsRollout, MarsSettings
from orgthink.training.rl import Batch, Clock
from orgthink.training.rows import PolicyRow, row_of
from orgthink.util.errors import UserError
from orgthink.view.layout import layout

BUSY = Habits(solves=0.3, accuses=0.7, rambles=0.1, spellings=50)


@pytest.fixture
def settings(tmp_path: Path) -> MarsSettings:
    task = problems_file(tmp_path, *range(7, 30))
    plan = MarsRollout(task, TERSE, max_tokens=14, segment=5, problems=3, group=4)
    return MarsSettings(plan, steps=1, learning_rate=1e-3)


def planned(settings: MarsSettings, **changes: Any) -> MarsSettings:
    return replace(settings, rollout=replace(settings.rollout, **changes))


def ticked(chains: Chains, engine: WordEngine, ticks: int) -> list[Batch]:
    """What each tick hands over; weights that are newer each time, as training makes them."""

    async def go() -> list[Batch]:
        batches = []
        for tick in range(ticks):
            engine.version = str(tick)
            batches.append(await chains.collect(engine, tick, Clock()))
        return batches

    return asyncio.run(go())


def stream_of(row: PolicyRow) -> str:
    return row.group.split("|")[1]


def chain_of(row: PolicyRow) -> str:
    return row.group.partition("|")[0]


def by_group(batch: Batch) -> dict[str, list[PolicyRow]]:
    groups = defaultdict(list)
    for row in batch.rows:
        groups[row.group].append(row)
    return groups


# The pipeline


def test_a_finished_group_is_handed_over_whole_and_once(settings):
    batches = ticked(Chains(settings), WordEngine(BUSY), 16)
    groups = [(name, rows) for batch in batches for name, rows in by_group(batch).items()]
    assert len({name for name, _ in groups}) == len(groups) > 30
    assert {stream_of(row) for _, rows in groups for row in rows} == set(STREAMS)
    for name, rows in groups:
        source = {row.agent.partition("/")[2].rpartition(".")[0] for row in rows}
        assert len(source) == 1, "they stand beside each other in the tree"
        assert [row.agent.rpartition("/")[2].rpartition(".")[2] for row in rows] == list("0123")
        assert {row.role for row in rows} == {role_of(name.split("|")[1])}
        prompts = {row.token_ids[: row.trained.index(True)] for row in rows}
        assert len(prompts) == 1, "they share their input"
        assert sum(row.advantage for row in rows) == pytest.approx(0, abs=1e-9)
    for batch in batches:
        assert len(by_group(batch)) == batch.metrics["groups"] - batch.metrics["flat_groups"]


@pytest.mark.parametrize("schedule", ["pipeline", "whole"])
def test_the_record_of_a_step_tells_what_was_trained_and_no_output_is_trained_twice(settings, schedule):
    settings = planned(settings, schedule=schedule, segment=5 if schedule == "pipeline" else None)
    batches = ticked(Chains(settings), failing(0.02), 12)
    trained: list[tuple[int, str]] = []
    for step, batch in enumerate(batches, 1):
        episodes = [load(dump(episode)) for episode in batch.episodes]
        measured = settings.measure(episodes)
        assert measured == {name: batch.metrics[name] for name in measured}
        by_agent = {(e.sample, t.agent): t for e in episodes for t in e.traces}
        for row in batch.rows:
            trace = by_agent[int(row.group.partition("#")[2].partition("|")[0]), row.agent]
            assert row_of(trace).token_ids == row.token_ids
        for episode in episodes:
            assert (episode.step, episode.grade) == (step, None)
            assert episode.id == f"{episode.problem.id}|marsrl|{episode.sample}|{step}"
            assert critical_path(episode) == longest_path(episode) > 0
            trained += [(episode.sample, place) for group in finished_in_step(episode) for place in group.places]
        assert layout_of(episodes)
    assert len(set(trained)) == len(trained) == sum(batch.metrics["outputs"] for batch in batches) > 200


def layout_of(episodes: list[Episode]) -> bool:
    """Every agent has its lane, from the first episode's start on."""
    return all(len(layout(episode).lives) == len(episode.traces) for episode in episodes)


def test_a_group_is_handed_over_at_the_tick_it_finished_and_its_chain_goes_on_at_the_next(settings):
    """Each output takes one tick: the solver's reward is had after the first, and the verifier is asked after that."""
    engine = WordEngine(lambda asked, luck: BUSY(asked, luck).replace(" hm", ""))
    settings = planned(settings, segment=None, problems=1)
    chains = Chains(settings)
    for tick in range(8):
        engine.requests.clear()
        (batch,) = ticked(chains, engine, 1)
        asked = Counter(text.split()[0] for text, _, _ in engine.requests)
        assert asked["sequential"] == 4, "one problem begins at every tick"
        assert batch.metrics["outputs"] == len(engine.requests), "all that was sampled has finished"
        assert (asked["verifier"] > 0) == (tick > 0)
        assert batch.metrics["age_max"] in (0, None)
        assert {there for _, there, _ in engine.requests} == {0}


def test_an_unfinished_output_is_carried_on_and_holds_only_its_own_group_back(settings):
    """One of two groups of verifiers is slow: the other is trained on at once, but the corrector waits for both."""

    def write(asked: str, luck) -> str:
        role, *rest = asked.split()
        if role == "sequential":
            return f" {luck.choice(['slow', 'fast'])} <ANSWER> {luck.choice(rest)} </ANSWER>".replace("math", "8")
        if role == "verifier":
            slow = " w" * 9 if "slow" in rest else ""
            return f"{slow} </think> {luck.random()} correctness : {luck.choice(['wrong', 'correct'])}"
        return " <ANSWER> 8 </ANSWER>"

    engine = WordEngine(write)
    chains = Chains(planned(settings, problems=1, group=8, live=8, segment=6, max_tokens=18))
    batches = ticked(chains, engine, 4)
    assert [batch.metrics["groups"] for batch in batches] == [1, 1, 0, 1]
    assert [batch.metrics["live"] for batch in batches] == [16, 8, 8, 16]
    (fast, slow) = (batch.rows for batch in (batches[1], batches[3]))
    assert {row.age[-1] for row in fast} == {0}
    ages = {row.age[row.trained.index(True) :] for row in slow}
    assert {age[:6] for age in ages} == {(2,) * 6} and {age[12:] for age in ages} == {
        (0,) * (len(a) - 12) for a in ages
    }
    assert batches[3].metrics["age_max"] == 2
    assert not [text for text, _, _ in engine.requests if text.startswith("corrector")]
    ticked(chains, engine, 1)
    assert [text for text, _, _ in engine.requests if text.startswith("corrector")]


def test_no_problem_begins_while_too_much_is_under_way(settings):
    """What derives from others may be more than all: then none begins, and nothing breaks."""
    crowded = WordEngine(Habits(solves=0, accuses=1, rambles=0, spellings=10**6))
    chains = Chains(planned(settings, live=8, problems=5))
    begun, most = [], 0
    for _ in range(14):
        crowded.requests.clear()
        before = sum(chain.live for chain in chains._chains)
        ticked(chains, crowded, 1)
        new = len({text for text, there, _ in crowded.requests if text.startswith("sequential") and not there})
        assert new == max(0, 8 - before) // 4
        begun.append(new)
        most = max(most, before)
    assert begun[0] == 2 and 0 in begun[1:] and any(begun[1:]), "it goes on when there is room"
    assert most > 8


# Whole trajectories


@pytest.mark.parametrize(
    ("roles", "strategy"),
    [
        (ROLES, "random"),
        (ROLES, "balanced"),
        (ROLES, "adaptive"),
        (("verifier", "corrector"), "adaptive"),
        (("solver",), "adaptive"),
    ],
)
def test_both_schedules_hand_over_the_same_groups(settings, roles, strategy):
    """With the same seeds and one policy version: one step of whole trajectories, or as many ticks as it takes."""
    settings = planned(settings, roles=roles, strategy=strategy, live=3 * 4)
    whole = planned(settings, schedule="whole", segment=None)

    async def collected(settings: MarsSettings, ticks: int) -> list[Batch]:
        chains, engine = Chains(settings), WordEngine(BUSY)
        return [await chains.collect(engine, 0, Clock()) for _ in range(ticks)]

    (at_once,) = asyncio.run(collected(whole, 1))
    in_ticks = asyncio.run(collected(settings, 5 * 3))
    first = {chain_of(row) for row in at_once.rows}
    expected = {(row.group, row.agent): row for row in at_once.rows}
    found = {(row.group, row.agent): row for batch in in_ticks for row in batch.rows if chain_of(row) in first}
    assert found == expected and len(expected) >= 8
    assert at_once.metrics["chains"] == at_once.metrics["live"] == 0


def test_rewards_in_the_metrics_are_those_of_their_role(settings):
    """Who is always right earns 1, and verifiers who accuse everybody are wrong about every right solution."""
    fair = WordEngine(Habits(solves=1, accuses=1, rambles=0, spellings=99))
    whole = planned(settings, schedule="whole", segment=None)
    (batch,) = ticked(Chains(whole), fair, 1)
    metrics = batch.metrics
    assert metrics["rewards"] == {"solver": 1.0, "verifier": 0.0, "corrector": 1.0}
    assert metrics["right"] == dict(zip(STREAMS, (1.0, 0.0, 1.0, 0.0, 1.0), strict=True))
    assert metrics["verifier"] == {
        "accuracy": 0.0,
        "recall": None,
        "false_alarms": 1.0,
        "unparsed": 0.0,
        "judged_wrong_solutions": 0.0,
    }
    assert (metrics["groups"], metrics["flat_groups"], metrics["outputs"]) == (3 * 9, 3 * 9, 3 * 9 * 4)
    assert batch.rows == [] and metrics["truncated"] == 0


# Roles


def test_the_solver_alone_is_nobody_judged(settings):
    engine = WordEngine(BUSY)
    batches = ticked(Chains(planned(settings, roles=("solver",))), engine, 8)
    assert {text.split()[0] for text, _, _ in engine.requests} == {"sequential"}
    assert {stream_of(row) for batch in batches for row in batch.rows} == {"solver"}


def test_where_verifier_and_corrector_are_trained_the_solver_is_not(settings):
    """Its groups are made all the same, and do not count as flat."""
    chains = Chains(planned(settings, roles=("verifier", "corrector"), segment=None))
    batches = ticked(chains, WordEngine(BUSY), 12)
    assert {role_of(stream_of(row)) for batch in batches for row in batch.rows} == {"verifier", "corrector"}
    first = batches[0].metrics
    assert (first["groups"], first["flat_groups"], first["wait"]) == (3, 0, None)
    assert first["rewards"]["solver"] is not None and first["rewards"]["verifier"] is None
    for batch in batches[1:]:
        assert 3 + batch.metrics["flat_groups"] + len(by_group(batch)) == batch.metrics["groups"]


# Inputs that are too long


def test_problems_that_are_too_long_are_passed_over_and_such_inputs_not_handed_on(settings, tmp_path):
    (tmp_path / "problems.jsonl").write_text(
        '{"problem": "7 is short", "answer": "7"}\n{"problem": "8 ' + "is long " * 20 + '", "answer": "8"}\n'
    )
    engine = WordEngine(BUSY)
    ticked(Chains(planned(settings, max_input=20)), engine, 6)
    assert max(len(text.split()) for text, _, _ in engine.requests) <= 20
    assert {text.split()[1] for text, _, _ in engine.requests} == {"7"}
    assert {text.split()[0] for text, _, _ in engine.requests} >= {"sequential", "verifier"}


def test_a_task_of_problems_that_are_all_too_long_is_said(settings):
    with pytest.raises(UserError, match="every problem is longer than 2 tokens"):
        ticked(Chains(planned(settings, max_input=2)), WordEngine(BUSY), 1)


# What the engine fails, and what a minibatch is made of


def failing(share: float) -> WordEngine:
    """An engine that fails a share of the outputs."""

    def write(asked: str, luck: Any) -> str:
        if luck.random() < share:
            raise EngineError("out of memory")
        return BUSY(asked, luck)

    return WordEngine(write)


@pytest.mark.parametrize("schedule", ["pipeline", "whole"])
def test_an_output_that_the_engine_failed_breaks_its_group_and_no_other(settings, schedule):
    plan = planned(settings, schedule=schedule, segment=None)
    batches = ticked(Chains(plan), failing(0.04), 12)
    assert sum(batch.metrics["broken_groups"] for batch in batches) > 3
    assert sum(batch.metrics["groups"] for batch in batches) > 20
    for batch in batches:
        assert all(len(rows) == 4 for rows in by_group(batch).values())


def test_an_engine_that_fails_most_groups_ends_the_training_and_says_why(settings):
    with pytest.raises(UserError, match=r"groups failed, such as .* \(out of memory\): check the sampler"):
        ticked(Chains(settings), failing(0.5), 12)


def test_minibatches_are_not_made_of_one_stage_each(settings):
    """Chains stand in the order of their age: cut in that order, the solver's groups would always be trained last."""
    batches = ticked(Chains(planned(settings, problems=6, segment=None)), WordEngine(BUSY), 12)
    later = [batch for batch in batches if len({stream_of(row) for row in batch.rows}) > 2]
    halves = [list(by_group(batch))[: len(by_group(batch)) // 2] for batch in later]
    early = sum("|solver|" in name for half in halves for name in half)
    solvers = sum("|solver|" in name for batch in later for name in by_group(batch))
    assert solvers > 8
    assert 0.2 < early / solvers < 0.8
