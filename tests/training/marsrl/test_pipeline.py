"""The pipeline: each finished group is trained once, chains advance between steps, and a bug ends one chain only."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from again import finished_in_step, measured
from longest_path import longest_path
from mars_words import Habits, Step, WordEngine, problems_file, stepped
from terse import TERSE

from orgthink.engines.engine import EngineError
from orgthink.measure.latency import critical_path
from orgthink.record.episode import Grade, Problem
from orgthink.record.episode_json import dump, load
from orgthink.training.marsrl.chain import Rules
from orgthink.training.marsrl.pipeline import Pipeline, live
from orgthink.training.marsrl.rollout import ROLES, STREAMS, role_of
from orgthink.training.marsrl.settings import MarsRollout, MarsSettings
from orgthink.training.rows import PolicyRow, row_of
from orgthink.util.errors import ToolError, UserError

BUSY = Habits(solves=0.3, accuses=0.7, rambles=0.1, spellings=50)


@pytest.fixture
def settings(tmp_path: Path) -> MarsSettings:
    task = problems_file(tmp_path, *range(7, 60))
    plan = MarsRollout(task, TERSE, max_tokens=14, segment=5, problems=3, group=4)
    return MarsSettings(plan, steps=1, learning_rate=1e-3)


def planned(settings: MarsSettings, **changes: Any) -> MarsSettings:
    return replace(settings, rollout=replace(settings.rollout, **changes))


def stream_of(row: PolicyRow) -> str:
    return row.group.split("|")[1]


def by_group(step: Step) -> dict[str, list[PolicyRow]]:
    groups = defaultdict(list)
    for row in step.rows:
        groups[row.group].append(row)
    return groups


def test_a_finished_group_is_trained_whole_and_once(settings):
    steps = stepped(Pipeline(settings), WordEngine(BUSY), 16)
    groups = [(name, rows) for step in steps for name, rows in by_group(step).items()]
    assert len({name for name, _ in groups}) == len(groups) > 30
    assert {stream_of(row) for _, rows in groups for row in rows} == set(STREAMS)
    for name, rows in groups:
        assert len({row.agent.partition("/")[2].rpartition(".")[0] for row in rows}) == 1, "one source"
        assert [row.agent.rpartition("/")[2].rpartition(".")[2] for row in rows] == list("0123")
        assert {row.role for row in rows} == {role_of(name.split("|")[1])}
        assert len({row.token_ids[: row.trained.index(True)] for row in rows}) == 1, "one prompt"
        assert sum(row.advantage for row in rows) == pytest.approx(0, abs=1e-9)
    for step in steps:
        assert len(by_group(step)) == step.metrics["groups"] - step.metrics["flat_groups"]


def test_the_record_of_a_step_gives_its_metrics_and_no_output_is_trained_twice(settings):
    steps = stepped(Pipeline(settings), failing(0.02), 12)
    trained: list[tuple[int, str]] = []
    for number, step in enumerate(steps, 1):
        episodes = [load(dump(episode)) for episode in step.episodes]
        found = measured(settings, episodes)
        assert found == {name: step.metrics[name] for name in found}
        by_agent = {(e.sample, t.agent): t for e in episodes for t in e.traces}
        for row in step.rows:
            trace = by_agent[int(row.group.partition("#")[2].partition("|")[0]), row.agent]
            assert row_of(trace).token_ids == row.token_ids
        for episode in episodes:
            assert (episode.step, episode.grade) == (number, None)
            assert episode.id == f"{episode.problem.id}|marsrl|{episode.sample}|{number}"
            assert critical_path(episode) == longest_path(episode) > 0
            trained += [(episode.sample, place) for group in finished_in_step(episode) for place in group.places]
    assert len(set(trained)) == len(trained) == sum(step.metrics["outputs"] for step in steps) > 200


def test_a_chain_advances_by_one_agent_per_step(settings):
    """Each output takes one step: the solver's group is trained after the first, and the verifier follows."""
    engine = WordEngine(lambda text, luck: BUSY(text, luck).replace(" hm", ""))
    source = Pipeline(planned(settings, segment=None, problems=1))
    for number in range(8):
        engine.requests.clear()
        (step,) = stepped(source, engine, 1)
        roles = Counter(text.split()[0] for text, _, _ in engine.requests)
        assert roles["sequential"] == 4, "one problem begins at every step"
        assert step.metrics["outputs"] == len(engine.requests), "all outputs have finished"
        assert (roles["verifier"] > 0) == (number > 0)
        assert step.metrics["age_max"] in (0, None)


def test_an_unfinished_output_delays_only_its_own_group(settings):
    """One of two groups of verifiers is slow: the other is trained at once, but the corrector waits for both."""

    def write(text: str, luck) -> str:
        role, *rest = text.split()
        if role == "sequential":
            speed, answer = luck.choice([("slow", "8"), ("fast", "49")])
            return f" {speed} <ANSWER> {answer} </ANSWER>"
        if role == "verifier":
            slow = " w" * 9 if "slow" in rest else ""
            return f"{slow} </think> {luck.random()} correctness : {luck.choice(['wrong', 'correct'])}"
        return " <ANSWER> 8 </ANSWER>"

    engine = WordEngine(write)
    source = Pipeline(planned(settings, problems=1, group=8, live=8, segment=6, max_tokens=18))
    steps = stepped(source, engine, 4)
    assert [step.metrics["groups"] for step in steps] == [1, 1, 0, 1]
    assert [step.metrics["live"] for step in steps] == [16, 8, 8, 16]
    assert {row.age[-1] for row in steps[1].rows} == {0}
    ages = {row.age[row.trained.index(True) :] for row in steps[3].rows}
    assert all(age[:6] == (2,) * 6 and set(age[12:]) == {0} for age in ages)
    assert steps[3].metrics["age_max"] == 2
    assert not [text for text, _, _ in engine.requests if text.startswith("corrector")]
    stepped(source, engine, 1)
    assert [text for text, _, _ in engine.requests if text.startswith("corrector")]


def test_no_problem_begins_beyond_live_outputs(settings):
    crowded = WordEngine(Habits(solves=0, accuses=1, rambles=0, spellings=10**6))
    source, begun, most = Pipeline(planned(settings, live=8, problems=5)), [], 0
    for _ in range(14):
        crowded.requests.clear()
        before = sum(map(live, source._chains))
        stepped(source, crowded, 1)
        begun.append(len({text for text, n, _ in crowded.requests if text.startswith("sequential") and not n}))
        assert begun[-1] == max(0, 8 - before) // 4
        most = max(most, before)
    assert begun[0] == 2 and 0 in begun[1:] and any(begun[1:]), "problems begin again when there is room"
    assert most > 8


def test_rewards_in_the_metrics_are_those_of_their_role(settings):
    """Solutions are right, so verifiers that always find an error are wrong."""
    fair = WordEngine(Habits(solves=1, accuses=1, rambles=0, spellings=99))
    metrics = stepped(Pipeline(planned(settings, segment=None)), fair, 5)[-1].metrics
    assert metrics["rewards"] == {"solver": 1.0, "verifier": 0.0, "corrector": 1.0}
    assert metrics["right"] == dict(zip(STREAMS, (1.0, 0.0, 1.0, 0.0, 1.0), strict=True))
    assert metrics["verifier"] == {
        "accuracy": 0.0,
        "recall": None,
        "false_alarms": 1.0,
        "unparsed": 0.0,
        "judged_wrong_solutions": 0.0,
    }
    assert metrics["groups"] == metrics["flat_groups"] == 3 * 9


def test_only_the_solver_is_trained(settings):
    engine = WordEngine(BUSY)
    steps = stepped(Pipeline(planned(settings, roles=("solver",))), engine, 8)
    assert {text.split()[0] for text, _, _ in engine.requests} == {"sequential"}
    assert {stream_of(row) for step in steps for row in step.rows} == {"solver"}


def test_the_solver_is_not_trained_with_verifier_and_corrector(settings):
    """Its groups do not count as flat."""
    source = Pipeline(planned(settings, roles=("verifier", "corrector"), segment=None))
    steps = stepped(source, WordEngine(BUSY), 12)
    assert {role_of(stream_of(row)) for step in steps for row in step.rows} == {"verifier", "corrector"}
    assert (steps[0].metrics["groups"], steps[0].metrics["flat_groups"]) == (3, 0)
    for step in steps[1:]:
        assert 3 + step.metrics["flat_groups"] + len(by_group(step)) == step.metrics["groups"]


def test_long_problems_are_skipped_and_long_inputs_are_not_passed_on(settings, tmp_path):
    (tmp_path / "problems.jsonl").write_text(
        '{"problem": "7 is short", "answer": "7"}\n{"problem": "8 ' + "is long " * 20 + '", "answer": "8"}\n'
    )
    engine = WordEngine(BUSY)
    stepped(Pipeline(planned(settings, max_input=20)), engine, 6)
    assert max(len(text.split()) for text, _, _ in engine.requests) <= 20
    assert {text.split()[1] for text, _, _ in engine.requests} == {"7"}
    assert {text.split()[0] for text, _, _ in engine.requests} >= {"sequential", "verifier"}
    with pytest.raises(UserError, match="every problem is longer than 2 tokens"):
        stepped(Pipeline(planned(settings, max_input=2)), WordEngine(BUSY), 1)


def failing(share: float) -> WordEngine:
    """An engine that fails in a share of the outputs."""

    def write(text: str, luck: Any) -> str:
        if luck.random() < share:
            raise EngineError("out of memory")
        return BUSY(text, luck)

    return WordEngine(write)


def test_an_engine_error_breaks_one_group(settings):
    steps = stepped(Pipeline(planned(settings, segment=None)), failing(0.04), 12)
    assert sum(step.metrics["broken_groups"] for step in steps) > 3
    assert sum(step.metrics["groups"] for step in steps) > 20
    assert all(len(rows) == 4 for step in steps for rows in by_group(step).values())
    with pytest.raises(UserError, match=r"groups failed, such as .* \(out of memory\): check the sampler"):
        stepped(Pipeline(settings), failing(0.5), 12)


def test_minibatches_mix_the_stages(settings):
    steps = stepped(Pipeline(planned(settings, problems=6, segment=None)), WordEngine(BUSY), 12)
    later = [step for step in steps if len({stream_of(row) for row in step.rows}) > 2]
    halves = [list(by_group(step))[: len(by_group(step)) // 2] for step in later]
    early = sum("|solver|" in name for half in halves for name in half)
    solvers = sum("|solver|" in name for step in later for name in by_group(step))
    assert solvers > 8 and 0.2 < early / solvers < 0.8


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a bug of the grader"), ToolError("the sandbox is gone")], ids=repr
)
@pytest.mark.parametrize("roles", [ROLES, ("solver",)], ids=["all roles", "the solver"])
def test_a_bug_of_the_grader_ends_its_chain_only(settings, monkeypatch, roles, error):
    settings = planned(settings, roles=roles, segment=None)
    problems = Pipeline(settings)._problems
    bad, right = {next(problems).id}, Rules._right

    def clumsy(self: Rules, problem: Problem, answer: str) -> Grade:
        if problem.id in bad:
            raise error
        return right(self, problem, answer)

    monkeypatch.setattr(Rules, "_right", clumsy)
    source, crashes = Pipeline(settings), list[str]()
    source.working(lambda name, bug: crashes.append(name) or str(bug))
    (step,) = stepped(source, WordEngine(Habits(rambles=0)), 1)
    assert crashes and step.metrics["broken_groups"] >= 1 and step.rows
    assert not {row.episode.partition("#")[0] for row in step.rows} & bad
    assert len({episode.id for episode in step.episodes}) == len(step.episodes) >= 2
    bad |= {next(problems).id for _ in range(30)}
    with pytest.raises(UserError, match=f"failed, such as .*{error}"):
        stepped(source, WordEngine(Habits(rambles=0)), 1)
