"""Reinforcement learning of one role beside frozen models: whose tokens are trained, which groups, from which place."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from manager_episodes import Call, episode_of
from registered import register
from safetensors.torch import load_file
from tiny_policy import TINY

from orgthink.credit.accepted import AcceptedCredit
from orgthink.credit.shared import SharedCredit
from orgthink.engines import EngineSpec
from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.scripted import ScriptedEngine
from orgthink.evaluation.specs import OrganizationSpec, RoleSpec
from orgthink.grammar.toolcall import CallStatus
from orgthink.measure.accuracy import mixed
from orgthink.measure.usage import sampled_tokens
from orgthink.models.decoder import Decoder
from orgthink.organizations import ORGANIZATIONS
from orgthink.record.episode import Episode, Grade, Message, Origin, Problem, Sampling, Span, Trace
from orgthink.record.folder import RunFolder
from orgthink.rewards.asyncthink import AsyncThinkReward, AsyncThinkScore
from orgthink.rewards.paramanager import ParaManagerReward
from orgthink.runtime.agent import Agent
from orgthink.runtime.budget import Limits
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tasks import TASKS
from orgthink.tasks.task import Split, Task
from orgthink.training import checkpoint
from orgthink.training import rollout as frozen
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.episodes import Episodes, require_version
from orgthink.training.metrics import rollout_metrics
from orgthink.training.rl import Batch, Clock, train_policy
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout
from orgthink.training.scores import score_of
from orgthink.util.errors import UserError

pytestmark = pytest.mark.usefixtures("tiny_policy")

PARTNER = EngineSpec(str(TINY))
"""A frozen model; it has learned what the policy begins with."""


@dataclass(frozen=True)
class Led(Organization):
    """A manager of two frozen agents, one called by its role, the other by the name of its model."""

    name: str = "led"
    roles: ClassVar[tuple[str, ...]] = ("manager", "reviewer", "strong")

    async def run(self, problem: Problem, session: Session) -> str | None:
        async def work(agent: Agent) -> str:
            agent.spend(1.0)
            return await agent.complete()

        asked = (Message("user", problem.text),)
        manager = session.agent("manager", asked)
        said = await manager.complete()
        session.fork(manager, "1.1", session.agent("reviewer", asked), work)
        session.fork(manager, "1.2", session.agent("reasoner", asked, model="strong"), work)
        told = [(await session.join(manager, key)).text for key in ("1.1", "1.2")]
        manager.inject(" ; ".join(told))
        return said + await manager.complete()


class Coin(Task):
    """Problems whose answers are right by luck; every other one is right or wrong whatever is said."""

    name = "coin"

    def __init__(self, different: int = 10**6) -> None:
        self.different = different

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        n = 0
        while True:
            n += 1
            kind = n % self.different
            yield Problem(f"coin/{kind}", self.name, f"worker {kind % 10} of {kind % 7}")

    def grade(self, problem: Problem, answer: str) -> Grade:
        luck = zlib.crc32(f"{problem.id}{'' if int(problem.id[5:]) % 2 else answer}".encode())
        return Grade(luck >> 7 & 1, 1)


def by_text(episode: Episode) -> AsyncThinkScore:
    """A reward that differs between samples."""
    return AsyncThinkScore(zlib.crc32(episode.root.text.encode()) / 2**32, 0.5, 0.0, False)


FROZEN = {
    "reviewer": RoleSpec(PARTNER, Sampling(5)),
    "strong": RoleSpec(PARTNER, Sampling(7, temperature=0.8, seed=1)),
}
ROLLOUT = Rollout(
    "coin", OrganizationSpec("led"), Limits(4), 6, 1.5, problems=3, group=3, models=FROZEN, roles=("manager",)
)
SETTINGS = RlSettings(
    ROLLOUT, steps=4, learning_rate=1e-3, warmup=0, decay=False, reward=by_text, mixed=True, save_every=1
)  # type: ignore[arg-type]  # any function of an episode will do


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ORGANIZATIONS, led=Led)
    register(monkeypatch, TASKS, coin=Coin())


def collected(settings: RlSettings, steps: int = 1, source: Episodes | None = None) -> list[Batch]:
    """What so many steps collect, with the tiny model as the policy."""
    engine, episodes = LocalEngine.open(TINY, threaded=False), source or Episodes(settings)

    async def go() -> list[Batch]:
        async with episodes.working():
            batches = []
            for step in range(steps):
                await engine.update_weights(Decoder.load(TINY).to_hf(), str(step))
                batches.append(await episodes.collect(engine, step, Clock(), lambda episode: None))
            return batches

    return asyncio.run(go())


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[list[Episode]]:
    """What was rolled out, batch by batch."""
    from orgthink.training import episodes

    seen: list[list[Episode]] = []
    roll_out = episodes.roll_out

    async def noted(*given: Any) -> list[Episode]:
        seen.append(await roll_out(*given))
        return seen[-1]

    monkeypatch.setattr(episodes, "roll_out", noted)
    return seen


# Whose tokens


def test_only_what_the_policy_sampled_is_trained_and_counts_as_its_entropy(attempts):
    (batch,) = collected(replace(SETTINGS, mixed=False))
    (episodes,) = attempts
    assert {trace.role for e in episodes for trace in e.traces} == {"manager", "reviewer", "reasoner"}
    assert {row.agent for row in batch.rows} == {"manager"} and len(batch.rows) == 9
    drawn = [-p for e in episodes for span in e.root.spans for p in span.logprobs or ()]
    assert sum(sum(row.trained) for row in batch.rows) == sum(e.root.steps for e in episodes) == len(drawn)
    assert sum(map(sampled_tokens, episodes)) > len(drawn)
    assert batch.entropy == pytest.approx(sum(drawn) / len(drawn))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"roles": ()}, f"coin/1|led|0|1, manager/1.2: sampled by version {TINY.name}, not by 0"),
        (
            {"models": {"reviewer": FROZEN["reviewer"]}},
            "manager/1.2: sampled by the policy, but role reasoner is not trained",
        ),
    ],
    ids=["of a version that did not sample", "of a role that is not trained"],
)
def test_whose_tokens_they_are_is_checked_against_the_record(changes, words):
    """A member of the pool that is taken for the policy's, and one without a model, which the policy stands in for."""
    with pytest.raises(UserError) as caught:
        collected(replace(SETTINGS, rollout=replace(ROLLOUT, **changes), mixed=False))
    assert words in str(caught.value) and "\n" not in str(caught.value)


def versioned(role: str, version: str) -> Trace:
    return Trace(role, role, None, (Span(Origin.SAMPLED, "x", 1, policy_version=version),))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=5))
def test_a_trace_is_trained_if_and_only_if_the_newest_weights_sampled_it(made):
    traces = tuple(versioned("own" if own else "other", "3" if newest else "2") for own, newest in made)
    episode = Episode("e", Problem("p", "t", ""), "o", 2, traces)
    if all(own == newest for own, newest in made):
        require_version([episode], "3", lambda trace: trace.role == "own")
    else:
        with pytest.raises(UserError, match="episode e, o"):
            require_version([episode], "3", lambda trace: trace.role == "own")


# Frozen models


def test_frozen_models_draw_anew_for_every_step_problem_and_sample_and_again_in_another_run(attempts, monkeypatch):
    settings = replace(SETTINGS, mixed=False)
    register(monkeypatch, TASKS, coin=Coin(different=4))  # the same three problems at every step
    for _ in range(2):
        collected(settings, 2)
    first, second, again, _ = [
        {(e.id, trace.role): trace.spans[1].sampling for e in batch for trace in e.traces} for batch in attempts
    ]
    seeds = [{name: sampling.seed for name, sampling in batch.items()} for batch in (first, second)]
    assert len(set(seeds[0].values()) | set(seeds[1].values())) == len(seeds[0]) + len(seeds[1])
    assert first == again
    assert {(s.max_tokens, s.temperature) for (_, role), s in first.items() if role == "reasoner"} == {(7, 0.8)}
    texts = [[trace.text for e in batch for trace in e.traces] for batch in attempts]
    assert texts[:2] == texts[2:], "a run repeats"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Engines that were opened in place of real ones."""
    engines: list[Any] = []

    class Watched(ScriptedEngine):
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    async def open_engine(spec: EngineSpec, *, threaded: bool, slots: int) -> Watched:
        assert not threaded, "runs repeat to the bit"
        engines.append(Watched([], model=str(spec.model)))
        return engines[-1]

    monkeypatch.setattr("orgthink.engines.open_engine", open_engine)
    return engines


@pytest.mark.parametrize("fails", [False, True])
async def test_an_engine_is_opened_once_and_closed_at_the_end_whatever_the_end_is(opened, fails):
    models = {**FROZEN, "weak": RoleSpec(EngineSpec("another"), Sampling(3))}
    with pytest.raises(KeyError) if fails else nullcontext():
        async with frozen.frozen(models) as backings:
            assert [engine.model for engine in opened] == [str(TINY), "another"]
            assert backings["reviewer"].engine is backings["strong"].engine is not backings["weak"].engine
            assert {name: backing.sampling for name, backing in backings.items()} == {
                name: model.sampling for name, model in models.items()
            }
            assert not any(engine.closed for engine in opened)
            if fails:
                raise KeyError
    assert all(engine.closed for engine in opened)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"models": {**FROZEN, "strong": RoleSpec(EngineSpec("pokcet"), Sampling(3))}},
            "model of strong cannot be used: pokcet",
        ),
        ({"models": {"strong": FROZEN["strong"]}}, "role reviewer is neither trained nor frozen: name a model for it"),
        ({"models": {"stronk": FROZEN["strong"]}}, "has a role 'stronk'"),
        ({"roles": ("organizer",)}, "has a role 'organizer'"),
        ({"organization": OrganizationSpec("lead")}, "did you mean led"),
    ],
)
def test_who_or_what_is_not_there_is_said_before_anything_is_sampled(changes, words):
    SETTINGS.require(None)
    with pytest.raises(UserError, match=words):
        replace(SETTINGS, rollout=replace(ROLLOUT, **changes)).require(None)


@pytest.mark.parametrize("name", ["tool-use", "sequential", "asyncthink"])
def test_the_reward_of_a_manager_needs_one(name):
    spec = OrganizationSpec(name, {"tools": []} if name == "tool-use" else {})
    settings = RlSettings(Rollout("countdown", spec), steps=1, learning_rate=1e-3, reward=ParaManagerReward())
    if name == "tool-use":
        settings.require(None)
    else:
        with pytest.raises(UserError, match=f"^the reward is of what a manager does, and {name} has none"):
            settings.require(None)


def test_imitating_what_earns_enough_needs_a_reward_that_a_wrong_answer_does_not_earn():
    """As printed, the reward of a manager pays 3 for a wrong and tidy episode, and 2 for a right one at once."""
    spec = OrganizationSpec("tool-use", {"tools": []})
    settings = RlSettings(
        Rollout("countdown", spec), steps=1, learning_rate=1e-3, reward=ParaManagerReward(), credit=AcceptedCredit()
    )
    with pytest.raises(UserError, match=r"earns 1, and a wrong answer may earn 3: set credit\.least above that"):
        settings.require(None)
    replace(settings, reward=ParaManagerReward(gate="correct")).require(None)
    replace(settings, credit=AcceptedCredit(least=3.5)).require(None)
    replace(settings, credit=SharedCredit()).require(None)


# Mixed groups


def test_only_mixed_groups_are_trained(attempts):
    (batch,) = collected(SETTINGS)
    (episodes,) = attempts
    found = mixed(episodes)
    assert list(dict.fromkeys(row.group for row in batch.rows)) == found and 0 < len(found) < 3
    assert batch.metrics["drawn_groups"] == 3 and batch.metrics["groups"] == batch.metrics["mixed_groups"] == len(found)


# Runs


def trained(run: Path, settings: RlSettings) -> list[dict[str, Any]]:
    """Train, or go on training, in a folder; its metrics without the seconds."""
    folder = RunFolder.open(run) if (run / "config.json").exists() else RunFolder.create(run, "train", None)
    backend = EmbeddedBackend(Decoder.load(TINY), LocalEngine.open(TINY, threaded=False), TINY)
    train_policy(backend, Episodes(settings), settings, folder, lambda line: None)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.saved(run)[-1] / "model" / "model.safetensors")


def test_a_run_that_is_cut_goes_on_to_the_bit_with_its_place_in_the_problems(tmp_path):
    whole = trained(tmp_path / "whole", SETTINGS)
    for steps in (1, 3, 4):
        cut = trained(tmp_path / "cut", replace(SETTINGS, steps=steps))
        assert cut == whole[:steps]
    first, second = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(first[name], second[name]) for name in first)
    drawn = json.loads((checkpoint.saved(tmp_path / "whole")[-1] / "problems.json").read_text())["drawn"]
    assert drawn == sum(line["drawn_groups"] for line in whole)


# What is remembered, and told


# What is measured


def test_managers_are_measured_as_managers_and_others_are_not():
    led = [
        episode_of([[Call("python"), Call("search", CallStatus.TIMEOUT)], [Call("python", model="a", cost=2.0)]]),
        episode_of([[Call("python", CallStatus.PARSE_ERR)]]),
    ]
    led[1] = replace(led[1], id="other", grade=Grade(0, 1))
    found = rollout_metrics(led, {e.id: score_of(ParaManagerReward(), e) for e in led})
    assert found["all_correct"] == found["task_reward"] == 0.5
    assert found["reward"] == pytest.approx(sum(ParaManagerReward()(e).total for e in led) / 2)
    assert (found["rounds"], found["unique_tools"], found["cost_units"]) == (2.5, 1.0, 1.0)
    assert found["calls_per_round"] == pytest.approx((4 / 3 + 1 / 2) / 2)
    assert found["tool_shares"] == {"python": 2 / 3, "search": 1 / 3} and found["model_shares"] == {"a": 1.0}
    assert found["status_shares"] == {"OK": 0.5, "PARSE_ERR": 0.25, "TIMEOUT": 0.25}
    assert found["context_tokens"] == sum(span.tokens for e in led for span in e.root.spans) / 2
    json.dumps(found)

    alone = [replace(e, traces=(replace(e.root, role="organizer", edges=()),)) for e in led]
    found = rollout_metrics(alone, {e.id: score_of(AsyncThinkReward(), e) for e in alone})
    assert {"accuracy", "concurrency_reward", "penalised", "format_errors"} <= found.keys()
    assert not {"rounds", "cost_units", "tool_shares", "task_reward"} & found.keys()
