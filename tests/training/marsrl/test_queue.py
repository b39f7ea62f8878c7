"""The training queue: a group is trained on when it is complete, and decoding goes on all the time. In virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from mars_words import Habits, WordEngine, Write, problems_file
from terse import TERSE
from tiny_policy import TINY

from orgthink.engines.engine import Chunk, Context, EngineError
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.qwen3 import Qwen3
from orgthink.record.episode import Origin, Sampling
from orgthink.record.episode_json import dump, load
from orgthink.record.folder import RunFolder
from orgthink.runtime.clock import run_virtual
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.marsrl.chain import finished_in_step
from orgthink.training.marsrl.pipeline import Chains
from orgthink.training.marsrl.queue import Queue
from orgthink.training.marsrl.rollout import STREAMS
from orgthink.training.marsrl.settings import MarsRollout, MarsSettings
from orgthink.training.policy_loss import PolicyLoss
from orgthink.training.recipes.jobs import Mars
from orgthink.training.recipes.marsrl import PAPER
from orgthink.training.rl import Batch, Clock, train_policy
from orgthink.util.errors import UserError

BUSY = Habits(solves=0.3, accuses=0.7, rambles=0.1, spellings=50)


class Paced(WordEngine):
    """A word a second."""

    def __init__(self, write: Write) -> None:
        super().__init__(write)
        self.open = 0
        """Outputs that are being written."""

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        words = super().stream(context, sampling)
        self.open += 1
        try:
            while True:
                await asyncio.sleep(1)
                chunk = await anext(words, None)
                if chunk is None:
                    return
                yield chunk
                if chunk.finish is not None:
                    return
        finally:
            self.open -= 1


def settings_of(folder: Path, *answers: int, **changes: object) -> MarsSettings:
    defaults = {"max_tokens": 60, "problems": 1, "group": 2, "live": 6, "schedule": "queue"}
    plan = MarsRollout(problems_file(folder, *answers), TERSE, **{**defaults, **changes})
    return MarsSettings(plan, steps=1, learning_rate=1e-3)


async def steps(source: Chains, engine: WordEngine, count: int, first: int = 0) -> list[tuple[float, Batch]]:
    """What each step trains on, and the second at which it began to train; then weights are newer."""
    batches = []
    async with source.working():
        for step in range(first, first + count):
            engine.version = str(step)
            batch = await source.collect(engine, step, Clock())
            batches.append((asyncio.get_running_loop().time(), batch))
    return batches


def slow_at_first(settings: MarsSettings) -> Write:
    """Solutions of 40 words for the first problem, 5 for the third, and 3 for all others."""
    first, _, third = (problem.text.split()[0] for problem in islice(Chains(settings)._problems, 3))
    words = {first: 40, third: 5}
    return lambda asked, luck: " w" * words.get(asked.split()[1], 3)


def groups(batches: list[tuple[float, Batch]]) -> list[str]:
    return [name for _, batch in batches for name in dict.fromkeys(row.group for row in batch.rows)]


def record(batches: list[tuple[float, Batch]]) -> list[str]:
    """Chain and source of each group that was handed over."""
    return [
        episode.id.partition("|marsrl|")[2].rpartition("|")[0] for _, batch in batches for episode in batch.episodes
    ]


def test_a_group_is_handed_over_in_the_second_in_which_it_is_complete(tmp_path):
    """There is room for three problems, of 40, 3 and 5 words and the end. The second is complete at 4, the third at 6.
    Each makes place for another one of 3 words: at 8, 10, 12 and so on. The first is trained on at 41."""
    settings = settings_of(tmp_path, *range(7, 60), roles=("solver",))
    batches = run_virtual(steps(Queue(settings), Paced(slow_at_first(settings)), 20))
    assert [time for time, _ in batches[:8]] == [4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0]
    assert [time for time, batch in batches if batch.episodes[0].sample == 0] == [41.0]
    ticks = replace(settings, rollout=replace(settings.rollout, schedule="pipeline", problems=3))
    assert [time for time, _ in run_virtual(steps(Chains(ticks), Paced(slow_at_first(settings)), 1))] == [41.0]


def test_an_output_waits_for_its_group_also_while_weights_are_trained(tmp_path, monkeypatch):
    """Outputs of the first problem have 2 and 20 words and the end, all others 3. The first step trains for 100 s, in
    which the clock of the loop stands still."""
    settings = settings_of(tmp_path, *range(7, 60), roles=("solver",), live=4)
    first, trained = next(Chains(settings)._problems).text.split()[0], 0.0
    lengths = iter([2, 20])

    async def waits() -> dict[int, float]:
        nonlocal trained
        loop, source, found = asyncio.get_running_loop(), Queue(settings), {}
        monkeypatch.setattr("orgthink.training.marsrl.queue.time.monotonic", lambda: loop.time() + trained)
        engine = Paced(lambda asked, luck: " w" * (next(lengths) if asked.split()[1] == first else 3))
        async with source.working():
            for step in range(12):
                batch = await source.collect(engine, step, Clock())
                found[batch.episodes[0].sample] = batch.metrics["wait"]
                trained = 100.0
        return found

    found = run_virtual(waits())
    assert found[0] == (118 + 0) / 2
    assert found[1] == 0


def test_decoding_never_drains(tmp_path):
    """There is room for 24 outputs, and a group of 4 begins as soon as it fits: never fewer than 21 are written. Ticks
    wait for the slowest."""
    settings = settings_of(tmp_path, *range(7, 60), group=4, live=24, problems=3)
    ticks = replace(settings, rollout=replace(settings.rollout, schedule="pipeline"))
    assert min(run_virtual(watched(Queue(settings), Paced(BUSY)))) == 21
    assert min(run_virtual(watched(Chains(ticks), Paced(BUSY)))) == 1


async def watched(source: Chains, engine: Paced) -> list[int]:
    """How many outputs are being written in the middle of each second of forty steps."""
    seen: list[int] = []

    async def watch() -> None:
        await asyncio.sleep(0.5)
        while True:
            seen.append(engine.open)
            await asyncio.sleep(1)

    watching = asyncio.create_task(watch())
    await steps(source, engine, 40)
    watching.cancel()
    assert len(seen) > 40
    return seen


def test_each_group_is_handed_over_once_and_whole_with_what_it_was_made_from(tmp_path):
    settings = settings_of(tmp_path, *range(7, 60), group=4, live=24, problems=3)
    batches = run_virtual(steps(Queue(settings), Paced(BUSY), 30))
    assert len(set(record(batches))) == len(record(batches)) == 90
    assert {name.split("|")[1] for name in groups(batches)} == set(STREAMS)
    for step, (_, batch) in enumerate(batches, 1):
        assert all(size == 4 for size in Counter(row.group for row in batch.rows).values())
        episodes = [load(dump(episode)) for episode in batch.episodes]
        assert all(len(finished_in_step(episode, "queue")) == 1 for episode in episodes)
        measured = settings.measure(episodes)
        assert measured == {name: batch.metrics[name] for name in measured} and measured["groups"] == 3
        assert {episode.step for episode in episodes} == {step}


def test_every_token_keeps_the_version_that_drew_it(tmp_path):
    """An output that goes on while others are trained on has a span for each version, and each token its age."""
    settings = settings_of(tmp_path, *range(7, 60), roles=("solver",))
    batches = run_virtual(steps(Queue(settings), Paced(slow_at_first(settings)), 30))
    aged = 0
    for step, (_, batch) in enumerate(batches):
        for row in batch.rows:
            drawn = [step - age for age, trained in zip(row.age, row.trained, strict=True) if trained]
            assert drawn == sorted(drawn) and drawn[-1] <= step
    for step, (_, batch) in enumerate(batches):
        for episode in batch.episodes:
            for trace in episode.traces[1:]:
                versions = [int(s.policy_version or 0) for s in trace.spans if s.origin is Origin.SAMPLED]
                assert versions == sorted(set(versions)) and versions[-1] <= step
                aged += len(versions) > 3
    assert aged


def test_the_queue_hands_over_what_whole_trajectories_do(tmp_path):
    """With the same seeds and one version of the policy."""
    settings = settings_of(tmp_path, *range(7, 60), group=4, live=12, problems=3)
    whole = replace(settings, rollout=replace(settings.rollout, schedule="whole"))

    async def collected(source: Chains, count: int) -> dict[tuple[str, str], object]:
        async with source.working():
            found = [await source.collect(WordEngine(BUSY), 0, Clock()) for _ in range(count)]
        return {(row.group, row.agent): row for batch in found for row in batch.rows}

    expected, found = run_virtual(collected(Chains(whole), 1)), run_virtual(collected(Queue(settings), 40))
    first = {name.partition("|")[0] for name, _ in expected}
    assert {key: row for key, row in found.items() if key[0].partition("|")[0] in first} == expected
    assert len(expected) >= 8


@pytest.mark.parametrize("after", [0, 1, 7, 20])
def test_a_run_that_is_resumed_hands_over_the_groups_that_are_left_and_none_again(tmp_path, after):
    settings = settings_of(tmp_path, *range(7, 60), group=4, live=12, problems=3)
    whole = record(run_virtual(steps(Queue(settings), Paced(BUSY), 30)))
    before, again = Queue(settings), Queue(settings)
    engine = Paced(BUSY)

    async def interrupted() -> list[tuple[float, Batch]]:
        found = []
        async with before.working():
            for step in range(after):
                found.append((0.0, await before.collect(engine, step, Clock())))
            await asyncio.sleep(2)  # while the weights are handed to the sampler, some groups become complete
            before.snapshot()(tmp_path)
        return found

    handed = record(run_virtual(interrupted()))
    again.load(tmp_path, after)
    handed += record(run_virtual(steps(again, engine, 30 - after, after)))
    assert len(set(handed)) == len(handed) == len(whole) == 90
    done = {name.partition("|")[0] for name in whole} - {name.partition("|")[0] for name in whole[-40:]}
    assert {name for name in whole if name.partition("|")[0] in done} <= set(handed) and len(done) > 1


def test_where_the_solver_is_not_trained_a_step_waits_for_the_others(tmp_path):
    settings = settings_of(tmp_path, *range(7, 60), group=4, live=24, problems=3, roles=("verifier", "corrector"))
    for _, batch in run_virtual(steps(Queue(settings), Paced(BUSY), 10)):
        trained = [episode for episode in batch.episodes if episode.traces[-1].role != "solver"]
        assert len(trained) == 3 and {row.role for row in batch.rows} <= {"verifier", "corrector"}


def test_an_engine_that_fails_most_groups_ends_the_training_and_says_why(tmp_path):
    def write(asked: str, luck: Random) -> str:
        raise EngineError("out of memory")

    with pytest.raises(UserError, match=r"groups failed, such as .* \(out of memory\): check the sampler"):
        run_virtual(steps(Queue(settings_of(tmp_path, *range(7, 60))), Paced(write), 1))


@pytest.mark.usefixtures("tiny_policy")
def test_a_model_learns_from_the_queue_and_a_run_goes_on_where_it_was_stopped(tmp_path):
    """Weights are updated while outputs are decoded: their tokens have ages, and drift is measured on fresh ones."""
    settings = settings_of(tmp_path, *range(7, 30), problems=3, group=4, live=24, max_tokens=24)
    settings = replace(settings, steps=3, loss=PolicyLoss(old="pois"), save_every=1)

    def trained(name: str, settings: MarsSettings) -> list[dict[str, Any]]:
        path, lines = tmp_path / name, list[dict[str, Any]]()
        run = RunFolder.open(path) if path.exists() else RunFolder.create(path, "train", None)
        backend = EmbeddedBackend(Qwen3.load(TINY), LocalEngine.open(TINY, threaded=False), TINY)
        try:
            train_policy(backend, Queue(settings), settings, run, lines.append)
        except UserError as error:  # so early all of its groups may be flat
            assert settings.steps == 3 and "no step had anything to train on" in str(error)
        return lines

    lines = trained("run", settings) + trained("run", replace(settings, steps=6))
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert all(
        line["groups"] == 3 and line["logprob_difference"] in (None, pytest.approx(0, abs=1e-4)) for line in lines
    )
    episodes = list(RunFolder.open(tmp_path / "run").episodes())
    assert len({episode.id.rpartition("|")[0] for episode in episodes}) == len(episodes) == 18


def test_the_papers_recipe_has_no_barrier():
    assert isinstance(PAPER, Mars) and isinstance(PAPER.source(), Queue)
    assert PAPER.settings.loss.old == "pois"
