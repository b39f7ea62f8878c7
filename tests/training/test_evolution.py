"""Evolution strategies: the update is the formula, members decode together, a reward is learned, a run repeats to the
bit."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
import torch
from architectures import tiny
from echo import TASK
from engines.models import tiny_model
from safetensors.torch import load_file
from terse import TERSE
from test_rl import metrics, same
from tiny_policy import TINY

from orgthink.cli import main
from orgthink.engines.local.engine import LocalEngine
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.models.decoder import Decoder
from orgthink.models.lora import ADAPTER, LoraSettings, matrices_of
from orgthink.models.model_files import model_files
from orgthink.models.trainable import open_trainable
from orgthink.record.episode import Episode, Origin, StopReason
from orgthink.record.folder import RunFolder
from orgthink.rewards import EpisodeReward, Score
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.runtime.budget import Limits
from orgthink.training import checkpoint, evolution
from orgthink.training.evolution import EvolutionSettings, MemberAttempts, Population, evolve
from orgthink.training.recipes.evolution import Evolution
from orgthink.training.recipes.registry import outlook
from orgthink.training.rl import Clock
from orgthink.training.rollout import Rollout, roll_out
from orgthink.util.errors import UserError

LORA = LoraSettings(4)
ROLLOUT = Rollout(
    TASK, OrganizationSpec("sequential", {"prompts": TERSE}), Limits(1, max_tokens=8), max_tokens=8, problems=2, group=1
)
SETTINGS = EvolutionSettings(ROLLOUT, steps=3, learning_rate=0.1, population=4, sigma=0.05, save_every=1)


@dataclass(frozen=True)
class SmallNumbers(EpisodeReward):
    """The share of numbers below 50 among the sampled words."""

    def __call__(self, episode: Episode) -> Score:
        sampled = (s for trace in episode.traces for s in trace.spans if s.origin is Origin.SAMPLED)
        said = "".join(span.text for span in sampled).split()
        return Score(sum(word.isdigit() and int(word) < 50 for word in said) / max(1, len(said)))


def population(base: Path, settings: EvolutionSettings = SETTINGS, lora: LoraSettings = LORA) -> Population:
    model = open_trainable(base, lora)
    assert isinstance(model, Decoder)
    return Population(model, lora, LocalEngine.open(base, threaded=False), base, settings)


def center(found: Population) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in found._center.items()}


def evolved(base: Path, run: Path, settings: EvolutionSettings, lora: LoraSettings = LORA) -> list[dict[str, Any]]:
    evolve(population(base, settings, lora), settings, RunFolder.create(run, "train", None), lambda line: None)
    return metrics(run)


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model") / "tiny", words=("of",), context=64)


# The update


def test_the_update_is_the_formula(random_model):
    """θ + α/N Σ z ε, with the noise of the members that the sampler got."""
    found = population(random_model)
    before, around, fitness = center(found), found._around("7"), [0.5, 0.25, 0.0, 1.0]
    assert around.keys() == set("0123")
    noise = [
        {name: (one.weights[name] - weight) / SETTINGS.sigma for name, weight in before.items()}
        for one in around.values()
    ]
    for pair in ((0, 1), (2, 3)):
        for name in before:
            torch.testing.assert_close(noise[pair[0]][name], -noise[pair[1]][name], atol=1e-4, rtol=0)
    whole = torch.cat([each.flatten() for each in noise[0].values()])
    assert abs(float(whole.mean())) < 0.1 and float(whole.std()) == pytest.approx(1, abs=0.05)
    assert not same(noise[0], noise[2]) and not same(around["0"].weights, found._around("8")["0"].weights)
    norm = found.move("7", fitness)
    z = [(each - fmean(fitness)) / pstdev(fitness) for each in fitness]
    total = {name: sum(one * each[name] for one, each in zip(z, noise, strict=True)) / 4 for name in before}
    for name, weight in center(found).items():
        torch.testing.assert_close(weight, before[name] + SETTINGS.learning_rate * total[name], atol=1e-5, rtol=0)
    length = torch.cat([torch.as_tensor(each).flatten() for each in total.values()]).norm()
    assert norm == pytest.approx(float(length) * pstdev(fitness) / SETTINGS.sigma, rel=1e-3)
    moved = center(found)
    assert found.move("8", [0.5] * 4) is None and same(center(found), moved), "equal rewards teach nothing"
    with pytest.raises(UserError, match="gradient norm is inf"):
        found.move("9", [1e308, -1e308, 0.0, 0.0])
    assert same(center(found), moved)


def test_weights_that_diverge_are_named_at_their_step(random_model):
    """Of a gradient that is finite. The adapter stays as it was."""
    found = population(random_model, replace(SETTINGS, learning_rate=3e38))
    before = center(found)
    with pytest.raises(UserError, match="weights after step 7 are not finite"):
        found.move("6", [0.0, 1.0, 1.0, 0.0])
    assert same(center(found), before)


def test_a_quadratic_is_minimised(random_model):
    """The reward is minus the squared distance of matrix B of the first layer to a target."""
    settings = replace(SETTINGS, population=32, sigma=0.05, learning_rate=0.05)
    found = population(random_model, settings)
    name = next(name for name in found._center if "lora_B" in name)
    target = torch.full_like(center(found)[name], 0.3)
    first = float((center(found)[name] - target).square().sum())
    for version in map(str, range(60)):
        around = found._around(version).values()
        found.move(version, [-float((one.weights[name] - target).square().sum()) for one in around])
    assert float((center(found)[name] - target).square().sum()) < 0.7 * first


# Runs


def test_a_reward_is_learned(random_model, tmp_path):
    """The policy comes to say small numbers, from a fifth of its words to most of them."""
    settings = replace(
        SETTINGS,
        rollout=replace(ROLLOUT, temperature=0.05, max_tokens=6),
        reward=SmallNumbers(),
        steps=12,
        population=16,
        sigma=0.15,
        learning_rate=0.5,
    )
    lines = evolved(random_model, tmp_path / "run", settings, LoraSettings(1, alpha=8.0, targets=("down_proj",)))
    first, last = (fmean(line["reward"] for line in part) for part in (lines[:2], lines[-4:]))
    assert first < 0.4 and last > first + 0.25, (first, last)


def test_members_decode_together_with_the_luck_of_their_pair(tiny_policy, tmp_path):
    """With hardly any noise, the members of a pair sample the same tokens, and those of another pair do not."""
    rollout = replace(ROLLOUT, organization=OrganizationSpec("asyncthink", {"prompts": TERSE}), limits=Limits(3))
    rollout = replace(rollout, temperature=1.0, max_tokens=24, group=2, problems=3)
    settings = replace(SETTINGS, rollout=rollout, steps=1, sigma=1e-7)
    found = population(TINY, settings)
    run = RunFolder.create(tmp_path / "run", "train", None)
    evolve(found, settings, run, lambda line: None)
    episodes = list(run.episodes())
    assert len({episode.id for episode in episodes}) == len(episodes) == 3 * 2 * 4
    texts: list[list[Any]] = [[] for _ in range(4)]
    for one in sorted(episodes, key=lambda one: (one.problem.id, one.sample)):
        texts[one.sample // 2].append([span.text for trace in one.traces for span in trace.spans])
        models = {trace.model for trace in one.traces if trace.model is not None}
        assert models == {f"{found.sampler.model}/{one.sample // 2}"}, "every role has the adapter of the member"
    assert texts[0] == texts[1] and texts[2] == texts[3] and texts[0] != texts[2]
    longest = max(sum(trace.steps for trace in one.traces) for one in episodes)
    assert found.sampler.counters.steps < 2 * longest, "all members decode in the same steps"
    (line,) = metrics(tmp_path / "run")
    assert line["step_tokens"] == sum(trace.steps for one in episodes for trace in one.traces)
    fitness = [fmean(AsyncThinkReward()(e).total for e in episodes if e.sample // 2 == place) for place in range(4)]
    assert line["reward"] == pytest.approx(fmean(fitness)) and line["best_fitness"] == max(fitness)
    assert line["fitness_deviation"] == pytest.approx(pstdev(fitness))


async def attempts(found: Population, steps: tuple[int, ...], **changes: Any) -> list[Any]:
    """What the members sample at these steps, at the same problems: texts, fitness and metrics of each step."""
    settings, record = replace(found._settings, **changes), list[Episode]()
    source = MemberAttempts(settings)
    problems = source._problems.batch()
    source._problems.batch = lambda: problems  # type: ignore[method-assign]
    results = list[Any]()
    async with source.working(lambda *bug: ""):
        for step in steps:
            await found.sync_sampler(str(step))
            record.clear()
            results.append(await source.fitness(found.sampler, step, Clock(), record.append))
            results[-1] += (sorted((one.id, one.root.text) for one in record),)
    return results


async def test_the_luck_of_an_attempt_follows_from_the_seed_and_the_step(tiny_policy):
    settings = replace(SETTINGS, rollout=replace(ROLLOUT, temperature=1.0), sigma=1e-7)
    found = population(TINY, settings)
    first, second = (texts for *_, texts in await attempts(found, (0, 1)))
    assert [name for name, _ in first] == [name for name, _ in second] and first != second
    ((*_, again),) = await attempts(found, (1,))
    ((*_, other),) = await attempts(found, (1,), seed=1)
    assert again == second != other


async def test_a_problem_at_which_a_member_has_no_fair_attempt_counts_for_none(tiny_policy, monkeypatch):
    """Neither where an engine failed a member, nor where the reward has a bug."""

    @dataclass(frozen=True)
    class Buggy(EpisodeReward):
        def __call__(self, episode: Episode) -> Score:
            steps.add(episode.step)
            return Score(1 / (episode.problem.id != bad or episode.sample != 2) + episode.sample)

    found = population(TINY, replace(SETTINGS, rollout=replace(ROLLOUT, problems=3)))
    steps = set[int | None]()
    bad, whole = "", MemberAttempts(found._settings)._problems.batch()
    ((fitness, line, _),) = await attempts(found, (0,), reward=Buggy())
    assert (fitness, line["broken_groups"]) == ([1.0, 2.0, 3.0, 4.0], 0), "of each member"
    tokens, bad = line["step_tokens"], whole[0].id
    ((fitness, line, texts),) = await attempts(found, (0,), reward=Buggy())
    assert (fitness, line["broken_groups"], len(texts)) == ([1.0, 2.0, 3.0, 4.0], 1, 12)
    assert line["step_tokens"] < tokens

    async def failing(*given: Any) -> list[Episode]:
        """The second member's attempt at the second problem has failed."""
        return [
            replace(one, stop=StopReason.ERROR) if (one.problem.id, place) == (whole[1].id, "1") else one
            for one in await roll_out(*given)
            for place in [(one.root.model or "").rpartition("/")[2]]
        ]

    monkeypatch.setattr(evolution, "roll_out", failing)
    ((fitness, line, _),) = await attempts(found, (0,), reward=replace(Buggy()))
    assert (fitness, line["broken_groups"]) == ([1.0, 2.0, 3.0, 4.0], 2), "one by a bug, one by an engine"
    assert steps == {1}, "a reward knows the step"


async def test_a_sampler_without_the_members_of_the_step_is_named(tiny_policy):
    found = population(TINY)
    await found.sync_sampler("4")
    source = MemberAttempts(SETTINGS)
    async with source.working():
        with pytest.raises(UserError, match="sampled by version 4, not by 5"):
            await source.fitness(found.sampler, 5, Clock(), lambda episode: None)


@contextmanager
def ctrl_c_inside(step: int, monkeypatch: pytest.MonkeyPatch, times: int) -> Iterator[None]:
    """Ctrl-C in the middle of a step: the adapter has moved, and nothing is recorded yet."""
    move, calls = Population.move, 0

    def moved(self: Population, *given: Any) -> float | None:
        nonlocal calls
        found, calls = move(self, *given), calls + 1
        for _ in range(times if calls == step else 0):
            signal.raise_signal(signal.SIGINT)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Population, "move", moved)
        yield


GIVEN = ["--model", str(TINY), "--task", TASK, "--device", "cpu", "--lora", "4", "--steps", "4", "--set"]
GIVEN += [f"rollout.organization.settings.prompts={TERSE}", "rollout.max_tokens=24", "rollout.problems=3"]
GIVEN += ["rollout.temperature=1", "population=4", "sigma=0.05", "learning_rate=0.1"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_stopped_run_goes_on_to_the_bit(tiny_policy, tmp_path, monkeypatch, times):
    """Once, it finishes its step and saves; twice, it begins again with what was saved."""
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    given = ["train", "evolution", *GIVEN, "save_every=2", "--out"]
    with ctrl_c_inside(3, monkeypatch, times):
        assert main([*given, str(cut)]) == 130
    assert checkpoint.state(checkpoint.saved(cut)[-1])["step"] == (3 if times == 1 else 2)
    assert main(["train", "--resume", str(cut)]) == 0
    assert main([*given, str(whole)]) == 0
    assert metrics(cut) == metrics(whole) and len(metrics(whole)) == 4
    last, other = (checkpoint.saved(run)[-1] / "model" for run in (whole, cut))
    for file in ("model.safetensors", "adapter/adapter_model.safetensors"):
        assert same(load_file(last / file), load_file(other / file))
    assert [one.id for one in RunFolder.open(cut).episodes()] == [one.id for one in RunFolder.open(whole).episodes()]
    assert not (last.parent / "trainer.pt").exists(), "noise and optimizer leave nothing to store"

    assert same(open_trainable(last).to_hf(), load_file(last / "model.safetensors")), "a whole model folder"
    assert {file.name for file in model_files(TINY)} <= {file.name for file in last.iterdir()}
    merged = open_trainable(TINY, LORA)
    merged.restore_adapter(last / ADAPTER)
    assert any(matrix.any() for name, matrix in matrices_of(merged.adapters[ADAPTER]).items() if "lora_B" in name)
    assert same(merged.to_hf(), load_file(last / "model.safetensors"))
    again = ["train", "evolution", *GIVEN[2:], "steps=1", "--model", str(last / ADAPTER), "--out", str(tmp_path / "on")]
    assert main(again) == 0, "a training goes on with the adapter"


def test_a_step_that_fails_before_it_moves_loses_none_before_it(tiny_policy, tmp_path, monkeypatch):
    fitness = MemberAttempts.fitness

    async def failing(self: MemberAttempts, sampler: Any, step: int, *given: Any) -> Any:
        if step == 1:
            raise UserError("the sampler is gone")
        return await fitness(self, sampler, step, *given)

    monkeypatch.setattr(MemberAttempts, "fitness", failing)
    with pytest.raises(UserError, match="the sampler is gone"):
        evolved(TINY, tmp_path / "run", replace(SETTINGS, save_every=9))
    assert checkpoint.state(checkpoint.saved(tmp_path / "run")[-1])["step"] == 1


@pytest.mark.parametrize("organization", ["asyncthink", "verifier-corrector", "paramanager"])
def test_any_organization(tiny_policy, tmp_path, organization):
    own = {"pool": {"a": "x"}, "tools": []} if organization == "paramanager" else {}
    rollout = replace(ROLLOUT, organization=OrganizationSpec(organization, {"prompts": TERSE, **own}), limits=Limits(3))
    rollout = replace(rollout, max_tokens=16, temperature=1.0)
    settings = replace(SETTINGS, rollout=rollout, reward=SmallNumbers(), steps=1)
    (line,) = evolved(TINY, tmp_path / "run", settings)
    assert line["step_tokens"] > 0 and line["broken_groups"] == 0


# Settings


def test_a_dry_run_shows_the_bounds(tiny_policy, capsys, tmp_path):
    assert main(["train", "evolution", *GIVEN, "--dry-run", "--out", str(tmp_path / "run")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["job"]["kind"] == "evolution-strategies" and found["unnamed"] == []
    assert found["bounds"]["episodes_a_step"] == 4 * 3
    assert found["bounds"] == outlook(Evolution(replace(SETTINGS, rollout=replace(
        ROLLOUT, organization=OrganizationSpec("asyncthink"), limits=Limits(4, turns=16), max_tokens=24, problems=3
    ))))["bounds"]  # fmt: skip
    assert not {"dtype", "mixed_precision", "gradient_checkpointing", "sampler"} & found["job"].keys()


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("population=5", "population is 5: members come in pairs, so it must be even"),
        ("population=0", "population is 0: it must be at least 2"),
        ("sigma=0", "sigma is 0.0: it must be a number above 0"),
        ("slots=0", "slots is 0: it must be at least 1"),
        ("rollout.temperature=-1", "temperature is -1.0"),
        ("lora=none", "evolution strategies train an adapter without dropout: --lora RANK"),
        ("lora.dropout=0.1", "evolution strategies train an adapter without dropout: --lora RANK"),
        ("loss.kl=0.1", "a evolution-strategies training"),
    ],
)
def test_bad_settings_are_one_line(tiny_policy, tmp_path, capsys, given, complaint):
    assert main(["train", "evolution", *GIVEN, given, "--out", str(tmp_path / "run")]) == 2
    seen = capsys.readouterr().err
    assert complaint in seen and seen.count("\n") == 1 and not (tmp_path / "run").exists(), seen


def test_an_architecture_without_row_adapters_is_one_line(tmp_path):
    job = Evolution(SETTINGS, model=str(tiny(tmp_path / "neox", "GPTNeoX")), lora=LORA, device="cpu")
    with pytest.raises(UserError, match="transformers computes this architecture, which takes no adapters of members"):
        job.run(RunFolder.create(tmp_path / "run", "train", None), lambda line: None)


def test_a_run_without_any_difference_says_so(tiny_policy, tmp_path):
    @dataclass(frozen=True)
    class Flat(EpisodeReward):
        def __call__(self, episode: Episode) -> Score:
            return Score(1.0)

    with pytest.raises(UserError, match="no step had anything to train on, so the model is unchanged"):
        evolved(TINY, tmp_path / "run", replace(SETTINGS, reward=Flat(), steps=1))
    assert metrics(tmp_path / "run")[0]["gradient_norm"] is None
