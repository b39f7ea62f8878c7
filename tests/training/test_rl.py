"""The loop of reinforcement learning: groups, minibatches, metrics, controls; stopped anyhow, it goes on to the bit."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from echo import HELD_OUT, TASK
from hypothesis import given
from hypothesis import strategies as st
from killed import killed_inside
from safetensors.torch import load_file
from terse import TERSE
from test_sft import ctrl_c_inside
from tiny_policy import TINY
from tiny_recipes import named

from orgthink.cli import main
from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluation.grading import grade
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.measure.usage import sampled_tokens
from orgthink.models.decoder import Decoder
from orgthink.models.lora import ADAPTER, LoraSettings
from orgthink.record.episode import Episode, FormatError, Problem
from orgthink.record.folder import RunFolder
from orgthink.rewards.asyncthink import AsyncThinkReward, AsyncThinkScore
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tasks import task_named
from orgthink.training import checkpoint
from orgthink.training.backend import EmbeddedBackend, Signals
from orgthink.training.episodes import Episodes, grouped, require_version, whole_groups
from orgthink.training.optimization import minibatches, require_ratios
from orgthink.training.policy_loss import PolicyLoss
from orgthink.training.recipes.jobs import Policy
from orgthink.training.recipes.registry import Training, go_on, start
from orgthink.training.rl import train_policy
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import ProblemStream, Rollout, roll_out
from orgthink.training.rows import PolicyRow
from orgthink.util.errors import UserError

pytestmark = pytest.mark.usefixtures("tiny_policy")

ROLLOUT = Rollout(
    TASK,
    OrganizationSpec("asyncthink", {"prompts": TERSE}),
    Limits(capacity=3, max_tokens=24),
    max_tokens=24,
    problems=2,
    group=3,
)
SETTINGS = RlSettings(ROLLOUT, steps=2, learning_rate=1e-3, warmup=1, minibatches=2, save_every=1)

HOPELESS = replace(SETTINGS, steps=1, rollout=replace(ROLLOUT, max_tokens=2, limits=Limits(3, max_tokens=2)))
"""Two tokens are no answer: every reward is the same."""


class Counting(EmbeddedBackend):
    """Counts its optimizer steps."""

    updates = 0

    def optim_step(self, learning_rate: float, clip: float) -> float:
        self.updates += 1
        return super().optim_step(learning_rate, clip)


def tiny(kind: type[EmbeddedBackend] = Counting) -> Any:
    return kind(Decoder.load(TINY), LocalEngine.open(TINY, threaded=False), TINY)


def trained(run: Path, settings: RlSettings = SETTINGS, backend: Any = None) -> list[dict[str, Any]]:
    """Train, or go on training, in a folder; its metrics."""
    folder = RunFolder.open(run) if (run / "config.json").exists() else RunFolder.create(run, "train", None)
    train_policy(backend or tiny(), Episodes(settings), settings, folder, lambda line: None)
    return metrics(run)


def metrics(run: Path) -> list[dict[str, Any]]:
    """Without the seconds, which alone may differ between equal runs."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def different(first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    """Step and name of each metric that two runs do not share → its values."""
    pairs = [(one, other, name) for one, other in zip(first, second, strict=True) for name in one | other]
    return {f"{a['step']} {name}": (a.get(name), b.get(name)) for a, b, name in pairs if a.get(name) != b.get(name)}


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Of the newest checkpoint."""
    return load_file(checkpoint.saved(run)[-1] / "model" / "model.safetensors")


def same(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# Problems, groups and minibatches


@pytest.mark.parametrize("done", [0, 1, 7])
def test_the_problems_of_a_step_do_not_depend_on_where_a_run_began(done):
    plan = replace(ROLLOUT, problems=9)
    problems = ProblemStream(plan, seed=5)
    whole, places = [], [0]
    for _ in range(10):
        whole.append(problems.batch())
        places.append(problems.drawn)
    again = ProblemStream(plan, seed=5, drawn=places[done])
    assert [again.batch() for _ in range(10 - done)] == whole[done:]
    assert ProblemStream(plan, seed=6).batch() != whole[0]
    for batch in whole:
        assert len({problem.id for problem in batch}) == 9
        assert not any(problem.text.endswith(str(HELD_OUT)) for problem in batch)


async def test_a_group_is_one_problem_attempted_by_different_luck():
    plan, engine = ROLLOUT, LocalEngine.open(TINY, threaded=False)
    problems = ProblemStream(plan, seed=1).batch()
    episodes = await roll_out(plan, problems, engine, seed=2)
    assert Counter(e.problem.id for e in episodes) == {problem.id: 3 for problem in problems}
    assert len({e.id for e in episodes}) == 6 and len({e.root.text for e in episodes}) > 3
    again, other = [await roll_out(plan, problems, engine, seed) for seed in (2, 3)]
    assert [e.root.text for e in again] == [e.root.text for e in episodes] != [e.root.text for e in other]


async def scripted(failures: int) -> list[Episode]:
    """Three groups of three; so many requests fail, from the first on."""
    plan = replace(ROLLOUT, organization=OrganizationSpec("sequential"), problems=3)
    problems = ProblemStream(plan, seed=0).batch()
    turns = [Turn("1 +", when=problem.text, fails="out of memory") for problem in problems for _ in range(3)][:failures]
    turns += [Turn("1 + 2</ANSWER>") for _ in range(9 - failures)]
    return await roll_out(plan, problems, ScriptedEngine(turns), seed=0)


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_a_group_of_which_the_engine_broke_any_is_left_out(failures):
    episodes = run_virtual(scripted(failures))
    whole = whole_groups(episodes)
    assert [e.id for e in whole] == [e.id for e in episodes][3 if failures else 0 :]


def test_a_sampler_that_breaks_most_groups_is_named():
    episodes = run_virtual(scripted(4))
    with pytest.raises(UserError, match=r"2 groups failed, such as episode echo/\S+ \(out of memory\)"):
        whole_groups(episodes)


def test_what_other_weights_sampled_is_named():
    episodes = run_virtual(scripted(0))
    stale = [with_version(episode, "7") for episode in episodes]
    require_version(stale, "7")
    stale[4] = with_version(episodes[4], "6")
    with pytest.raises(UserError, match=f"{re.escape(episodes[4].id)}, {episodes[4].root.agent}: sampled by version 6"):
        require_version(stale, "7")


def with_version(episode: Episode, version: str) -> Episode:
    spans = tuple(replace(span, policy_version=version) for span in episode.root.spans)
    return replace(episode, traces=(replace(episode.root, spans=spans),))


rewards_of_groups = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.lists(st.integers(-2, 9), min_size=2, max_size=6), max_size=6
)


@given(rewards_of_groups, st.integers(0, 99))
def test_rewards_are_grouped_by_problem(groups, seed):
    episodes, rewards = [], {}
    for name, values in groups.items():
        for sample, value in enumerate(values):
            episodes.append(Episode(f"{name}#{sample}", Problem(name, "task", ""), "asyncthink", 2, (), sample))
            rewards[f"{name}#{sample}"] = {"reward": float(value)}
    random.Random(seed).shuffle(episodes)
    assert grouped(episodes, rewards) == {
        name: {f"{name}#{sample}": value for sample, value in enumerate(values)} for name, values in groups.items()
    }


def row(group: str, name: str) -> PolicyRow:
    return PolicyRow((0, 1), (False, True), (0.0, -1.0), 1.0, 1.0, group, name, "role", group, (0, 0))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 12))
def test_minibatches_are_cut_between_groups_and_do_not_know_how_much_was_forked(traces, count):
    rows = [row(f"g{i}", f"{i}.{j}") for i, number in enumerate(traces) for j in range(number)]
    parts = minibatches(rows, count)
    assert [row for part in parts for row in part] == rows
    groups = [list(dict.fromkeys(row.group for row in part)) for part in parts]
    assert groups == [
        list(dict.fromkeys(row.group for row in part))
        for part in minibatches([row(f"g{i}", "") for i in range(len(traces))], count)
    ]
    sizes = [len(part) for part in groups]
    assert sum(sizes) == len(traces), "no group is in two parts"
    assert len(parts) == min(count, len(traces))
    assert max(sizes) - min(sizes) <= 1


# The loop


@pytest.mark.numerical
def test_a_step_measures_what_it_says_and_a_run_repeats_to_the_bit(tmp_path):
    backend = tiny()
    lines = trained(tmp_path / "one", backend=backend)
    assert backend.updates == SETTINGS.steps * SETTINGS.minibatches
    assert trained(tmp_path / "two") == lines
    assert same(weights(tmp_path / "one"), weights(tmp_path / "two"))
    assert not same(weights(tmp_path / "one"), load_file(TINY / "model.safetensors"))

    raw = [json.loads(line) for line in (tmp_path / "one" / "metrics.jsonl").read_text().splitlines()]
    for step, line in enumerate(raw, 1):
        assert line["step"] == step
        assert line["seconds"].keys() >= {"rollout", "reward", "train", "sync"}
        assert line["format_errors"].keys() == {kind.value for kind in FormatError}
        assert line["groups"] == ROLLOUT.problems and line["flat_groups"] == line["broken_groups"] == 0
        assert line["computed_tokens"] < line["trained_tokens"] + 6 * 100
        assert 0 <= line["clip_fraction"] <= 1 and 0 < line["entropy"] < math.log(100)
        assert line["logprob_difference"] <= line["logprob_difference_max"] < 1e-4
        assert line["kl"] == 0 < line["gradient_norm"]
        for name in ("accuracy", "all_correct", "format_error_rate"):
            assert 0 <= line[name] <= 1
    assert raw[0]["learning_rate"] == pytest.approx(SETTINGS.learning_rate)

    plan, engine = ROLLOUT, LocalEngine.open(TINY, threaded=False)
    seed = random.Random("0/0").getrandbits(31)
    attempted = asyncio.run(roll_out(plan, ProblemStream(plan, 0).batch(), engine, seed))
    episodes = whole_groups([grade(episode, task_named(plan.task)) for episode in attempted])
    rewards = [SETTINGS.reward(episode) for episode in episodes]
    expected = {
        "reward": fmean(reward.total for reward in rewards),
        "accuracy": fmean(episode.grade.score for episode in episodes),
        "forks": fmean(sum(len(trace.forks) for trace in e.traces) for e in episodes),
        "sampled_tokens": fmean(map(sampled_tokens, episodes)),
        "trained_tokens": sum(map(sampled_tokens, episodes)),
    }
    assert {name: raw[0][name] for name in expected} == pytest.approx(expected)


def test_groups_without_spread_are_dropped_and_counted(tmp_path):
    backend = tiny()
    with pytest.raises(UserError, match="no step had anything to train on, so the model is unchanged"):
        trained(tmp_path, HOPELESS, backend)
    (line,) = metrics(tmp_path)
    assert "  nothing to train on  " in HOPELESS.progress_text({**line, "seconds": {}})
    with pytest.raises(UserError, match="no step had anything to train on"):
        trained(tmp_path, HOPELESS)
    assert trained(tmp_path, replace(SETTINGS, steps=2))[1]["trained_tokens"] > 0
    assert line["groups"] == line["flat_groups"] == ROLLOUT.problems
    assert line["reward"] == AsyncThinkReward().format_error
    assert backend.updates == line["trained_tokens"] == 0
    for name in ("loss", "entropy", "clip_fraction", "kl", "gradient_norm", "logprob_difference"):
        assert line[name] is None
    assert same(
        load_file(checkpoint.saved(tmp_path)[0] / "model" / "model.safetensors"), load_file(TINY / "model.safetensors")
    )


def test_a_reward_that_is_no_number_names_the_episode_and_loses_nothing(tmp_path):
    before = trained(tmp_path, replace(SETTINGS, steps=1))
    settings = replace(SETTINGS, reward=lambda episode: AsyncThinkScore(math.nan, 0.0, 0.0, False))
    with pytest.raises(UserError, match=r"the reward <lambda> of episode echo/\S+ is nan"):
        trained(tmp_path, settings)
    assert metrics(tmp_path) == before
    assert len(trained(tmp_path)) == 2


def test_a_step_that_fails_loses_none_before_it(tmp_path, capsys):
    """Each time the reward's judge is gone in the third step; mended, the run goes on as if nothing had been."""
    settings = replace(SETTINGS, steps=4, save_every=10)
    whole = trained(tmp_path / "whole", settings)
    for _ in range(2):

        def judged(episode: Episode) -> AsyncThinkScore:
            if episode.step == 3:
                raise UserError("no judge")
            return AsyncThinkReward()(episode)

        with pytest.raises(UserError, match="no judge"):
            trained(tmp_path / "cut", replace(settings, reward=judged))
        assert [checkpoint.state(one)["step"] for one in checkpoint.saved(tmp_path / "cut")] == [2]
    assert capsys.readouterr().err.count("step 2 is saved: continue with orgthink train --resume") == 1
    found = trained(tmp_path / "cut", settings)
    assert [line["step"] for line in found] == [1, 2, 3, 4]
    assert found == whole and same(weights(tmp_path / "cut"), weights(tmp_path / "whole"))


class Drifting(EmbeddedBackend):
    """Its sampler holds other weights from the second step on."""

    async def sync_sampler(self, version: str) -> None:
        other = {name: weight * (2 if version != "0" else 1) for name, weight in self._model.to_hf().items()}
        await self.sampler.update_weights(other, version)


def test_a_sampler_that_drifts_is_found_and_loses_nothing(tmp_path):
    with pytest.raises(UserError, match=r"episode echo/\S+, \w+\S*: sampler and trainer differ by") as caught:
        trained(tmp_path / "run", backend=tiny(Drifting))
    assert "\n" not in str(caught.value)
    assert [folder.name for folder in checkpoint.saved(tmp_path / "run")] == ["step-000001"]
    assert len(metrics(tmp_path / "run")) == 1
    assert trained(tmp_path / "run") == trained(tmp_path / "whole")


@pytest.mark.parametrize(("apart", "fits"), [(1.19, True), (1.21, False), (math.nan, False)])
@pytest.mark.parametrize("ratio", ["token", "sequence", "sequence-mean"])
def test_ratios_of_rows_begin_within_a_quarter_of_the_clip_range(ratio, apart, fits):
    """0.12 of 0.48, on the average of ten tokens."""
    loss, signals = PolicyLoss(ratio=ratio, reduction="episode-mean"), Signals(fresh=10, apart=apart)
    with nullcontext() if fits or ratio == "token" else pytest.raises(UserError, match=r"limit 0\.12"):
        require_ratios(signals, loss)


def test_a_low_rank_adapter_learns_in_place_of_the_weights(tmp_path):
    settings = replace(SETTINGS, steps=1, learning_rate=1e-2)
    job = Policy(settings, model=str(TINY), lora=LoraSettings(4), device="cpu")
    model = go_on(start(Training("test", job), tmp_path), lambda line: None)
    assert (model.parent / "model" / ADAPTER / "adapter_model.safetensors").is_file()
    (line,) = metrics(tmp_path)
    assert line["logprob_difference_max"] < 1e-4 and line["gradient_norm"] > 0
    base, merged = load_file(TINY / "model.safetensors"), load_file(model / "model.safetensors")
    moved = {name.split(".")[-2] for name in base if not torch.equal(base[name], merged[name])}
    assert moved == {f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")}


# Processes that end


def test_ctrl_c_and_kill_9_lose_nothing(tmp_path, capsys):
    """A run that is interrupted, killed in the middle of a step and resumed is the run that was not."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    options = ["train", named("ASYNCTHINK"), "--model", str(TINY), "--device", "cpu", "--set", "save_every=2"]
    assert main([*options, "--out", str(whole)]) == 0
    capsys.readouterr()

    with ctrl_c_inside(1):
        assert main([*options, "--out", str(cut)]) == 130
    answer, last = capsys.readouterr().err.splitlines()[:2]
    assert answer == "orgthink: finishing step 1; Ctrl-C again stops now"
    assert f"orgthink train --resume {cut}" in last
    (saved,) = checkpoint.saved(cut)
    assert checkpoint.state(saved)["step"] == len(metrics(cut)) < 5

    killed_inside(3, "train", "--resume", cut)
    assert len(metrics(cut)) < 5

    assert main(["train", "--resume", str(cut)]) == 0
    assert str(cut / "checkpoints" / "step-000005" / "model") in capsys.readouterr().out
    assert [line["step"] for line in metrics(whole)] == [1, 2, 3, 4, 5] == [line["step"] for line in metrics(cut)]
    assert different(metrics(cut), metrics(whole)) == {}
    assert same(weights(cut), weights(whole))
    assert not same(weights(whole), load_file(TINY / "model.safetensors")), "something was learned"
