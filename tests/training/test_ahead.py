"""Steps that do not wait for their slowest episode: it continues with the next weights and is trained later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from echo import TASK
from hypothesis import given, settings
from hypothesis import strategies as st
from registered import register
from terse import TERSE
from test_manager_rl import ROLLOUT as LED
from test_manager_rl import Coin, Led
from tiny_policy import TINY

from orgthink.engines.engine import Chunk, Context, Engine, FinishReason
from orgthink.engines.local.engine import LocalEngine
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.models.decoder import Decoder
from orgthink.organizations import ORGANIZATIONS
from orgthink.record.episode import Episode, Grade, Message, Origin, Problem, Sampling, Span, StopReason
from orgthink.record.folder import RunFolder
from orgthink.record.guard import is_storable
from orgthink.rewards.asyncthink import AsyncThinkScore
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tasks import TASKS
from orgthink.tasks.task import Split, Task
from orgthink.training import checkpoint
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.checkpoint import load_state
from orgthink.training.episodes import Episodes, State
from orgthink.training.rl import Batch, Clock, train_policy
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout
from orgthink.training.rows import PolicyRow
from orgthink.util.errors import UserError

pytestmark = pytest.mark.usefixtures("tiny_policy")


# Virtual time


@dataclass(frozen=True)
class Talk(Organization):
    """One agent that talks until it is done."""

    name: str = "talk"
    roles: ClassVar[tuple[str, ...]] = ("talker",)

    async def run(self, problem: Problem, session: Session) -> str | None:
        asked = (Message("user", f"{problem.id} {session.sample}"),)
        return await session.agent("talker", asked).complete()


@dataclass(frozen=True)
class Refused(Talk):
    """The second attempt at the second problem ends the training."""

    name: str = "refused"

    async def run(self, problem: Problem, session: Session) -> str | None:
        answer = await Talk.run(self, problem, session)
        if (problem.id, session.sample) == ("numbers/1", 1):
            raise UserError("no more")
        return answer


class Numbers(Task):
    """Problems without end, or the same few again and again."""

    name = "numbers"

    def __init__(self, different: int = 10**6) -> None:
        self.different = different

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        for n in range(10**6):
            yield Problem(f"numbers/{n % self.different}", self.name, "")

    def grade(self, problem: Problem, answer: str) -> Grade:
        return Grade(1, 1)


@dataclass
class Paced(Engine):
    """Writes a number of words for each episode, one per second."""

    words: Callable[[int, int], int]
    """Of a problem and a sample."""
    version: int = 0
    live: int = 0
    """Streams that are open."""
    fails: str = ""
    """The prompt at whose first word there is a bug."""
    model: str = "paced"
    native_calls: bool = False
    begun: list[str] = field(default_factory=list)
    """Prompts, in order of time."""
    drawn: list[tuple[str, int]] = field(default_factory=list)
    """Prompt and version of each word."""

    def prompt(self, messages: tuple[Message, ...]) -> Span:
        return Span(Origin.PROMPT, messages[0].content, 1, (0,))

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> tuple[str, tuple[int, ...]]:
        return text.join(around), (1,)

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...]]:
        return self.injection(text)

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        asked = context.messages[0].content
        words = self.words(*map(int, asked.removeprefix("numbers/").split()))
        self.live += 1
        self.begun.append(asked)
        try:
            for n in range(1, words + 1):
                await asyncio.sleep(1)
                if asked == self.fails:
                    raise ZeroDivisionError(asked)
                self.drawn.append((asked, self.version))
                yield Chunk((" x",), (n,), (-0.5,), FinishReason.EOS if n == words else None, str(self.version))
        finally:
            self.live -= 1

    async def aclose(self) -> None: ...


def by_sample(episode: Episode) -> AsyncThinkScore:
    return AsyncThinkScore(float(episode.sample), 0.0, 0.0, False)


PLAN = Rollout("numbers", OrganizationSpec("talk"), problems=2, group=2)
SETTINGS = RlSettings(PLAN, steps=9, learning_rate=1e-3, reward=by_sample)  # type: ignore[arg-type]  # as any function


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        register(patch, ORGANIZATIONS, talk=Talk, refused=Refused, led=Led)
        register(patch, TASKS, numbers=Numbers(), few=Numbers(4), coin=Coin())
        yield


async def step_of(source: Episodes, engine: Paced, step: int) -> Batch:
    engine.version = step
    return await source.collect(engine, step, Clock(), lambda episode: None)


def numbers(batch: Batch) -> list[int]:
    """The problems that are trained on, in order."""
    return [int(name.removeprefix("numbers/")) for name in dict.fromkeys(row.group for row in batch.rows)]


def test_a_step_does_not_wait_for_its_slowest_episode():
    engine = Paced(lambda problem, sample: 7 if (problem, sample) == (0, 1) else 2)

    async def go() -> tuple[list[Batch], list[float]]:
        source, ends = Episodes(replace(SETTINGS, ahead=1)), []
        batches = []
        async with source.working():
            for step in range(4):
                batches.append(await step_of(source, engine, step))
                ends.append(asyncio.get_running_loop().time())
        return batches, ends

    batches, ends = run_virtual(go())
    assert [numbers(batch) for batch in batches] == [[1, 2], [3, 4], [5, 6], [0, 7]]
    assert ends == [2, 4, 6, 8], "no step waits for seven seconds"
    short, long = (row for row in batches[3].rows if row.group == "numbers/0")
    assert short.age == (0, 3, 3)
    assert long.age == (0, 3, 3, 2, 2, 1, 1, 0), "the prompt, and what each version drew"
    for batch in batches[:3]:
        assert all(set(row.age) == {0} for row in batch.rows)
    assert [batch.metrics["underway"] for batch in batches] == [1] * 4
    assert [batch.metrics["age_max"] for batch in batches] == [0, 0, 0, 3]
    assert batches[3].metrics["age"] == pytest.approx((3 + 3 + 3 + 3 + 2 + 2 + 1 + 1) / (2 + 7 + 4))


lengths = st.lists(st.integers(1, 30), min_size=1, max_size=40)


@settings(max_examples=10)
@given(lengths, st.integers(0, 5), st.integers(1, 3), st.sets(st.integers(1, 11)))
@pytest.mark.thorough
def test_no_problem_is_lost_or_trained_twice_after_resuming(
    tmp_path_factory: pytest.TempPathFactory, seconds: list[int], ahead: int, problems: int, resumed: set[int]
):
    """Of the problems drawn so far, each was trained once or is under way; each token has the age of its weights."""
    settings = replace(SETTINGS, ahead=ahead, rollout=replace(PLAN, problems=problems))
    folder = tmp_path_factory.mktemp("place")
    trained: list[int] = []

    async def some(source: Episodes, steps: Sequence[int]) -> None:
        engine = Paced(lambda problem, sample: seconds[(2 * problem + sample) % len(seconds)])
        async with source.working():
            for step in steps:
                batch = await step_of(source, engine, step)
                source.snapshot()(folder)
                place = load_state(folder / "problems.json", State)
                underway = [int(problem.id.removeprefix("numbers/")) for problem in place.underway]
                assert len(numbers(batch)) == problems and len(underway) == ahead
                trained.extend(numbers(batch))
                assert sorted([*trained, *underway]) == list(range(place.drawn)), "each once"
                for row in batch.rows:
                    asked = f"{row.group} {row.episode.split('|')[-2]}"
                    said = [version for prompt, version in engine.drawn if prompt == asked]
                    assert [step - version for version in said] == list(row.age[1:])
        assert engine.live == 0

    cuts = [0, *sorted(resumed), 12]
    for first, end in pairwise(cuts):
        source = Episodes(settings)
        if first:
            source.load(folder)
        run_virtual(some(source, range(first, end)))


def test_a_bug_or_an_end_stops_all_requests():
    engine = Paced(lambda problem, sample: 50, fails="numbers/2 1")

    async def go() -> None:
        source = Episodes(replace(SETTINGS, ahead=3))
        with pytest.raises(ZeroDivisionError):
            async with source.working():
                await step_of(source, engine, 0)
        assert engine.live == 0 and len(asyncio.all_tasks()) == 1
        async with source.working():
            engine.fails = ""
            step = asyncio.create_task(step_of(source, engine, 0))
            await asyncio.sleep(10)
            assert engine.live == 10, "problems in progress are attempted again"
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
        assert engine.live == 0 and len(asyncio.all_tasks()) == 1
        assert {asked.split()[0] for asked, _ in engine.drawn} == {f"numbers/{n}" for n in range(5)}

    run_virtual(go())


def test_all_episodes_are_recorded_when_a_rollout_fails():
    """Those that had ended, and those in progress."""
    engine = Paced(lambda problem, sample: {(0, 1): 5, (1, 1): 2}.get((problem, sample), 1))
    plan = replace(PLAN, organization=OrganizationSpec("refused"))

    async def go() -> list[Episode]:
        source, recorded = Episodes(replace(SETTINGS, rollout=plan)), list[Episode]()
        async with source.working(lambda name, error: str(error)):
            with pytest.raises(UserError, match="no more"):
                await source.collect(engine, 0, Clock(), recorded.append)
        return recorded

    sampled = run_virtual(go())
    steps = {(int(e.problem.id.removeprefix("numbers/")), e.sample): e.root.steps for e in sampled}
    assert len(steps) == len(sampled) and all(is_storable(episode) for episode in sampled)
    assert steps[0, 1] in (1, 2) and sum(e.stop is StopReason.CANCELLED for e in sampled) == 1
    assert steps == {(0, 0): 1, (0, 1): steps[0, 1], (1, 0): 1, (1, 1): 2}


# Real models


def noise(model: Decoder, step: int) -> dict[str, torch.Tensor]:
    """Weights of a step, as far from each other as many updates make them."""
    generator = torch.Generator().manual_seed(step)
    state = model.to_hf()
    return {
        name: weight + 0.02 * weight.std() * torch.randn(weight.shape, generator=generator) * (weight.dim() > 1)
        for name, weight in state.items()
    }


def under(weights: Mapping[str, torch.Tensor], rows: Sequence[PolicyRow]) -> list[tuple[float, ...]]:
    """Log-probabilities of the rows' tokens under other weights."""
    model = Decoder.load(TINY)
    model.from_hf(weights)
    return EmbeddedBackend(model, None, TINY).logprobs(rows)  # type: ignore[arg-type]  # nothing is sampled


ASYNCTHINK = Rollout(
    TASK,
    OrganizationSpec("asyncthink", {"prompts": TERSE}),
    Limits(capacity=3, max_tokens=96),
    max_tokens=96,
    temperature=2.0,
    problems=2,
    group=3,
)


@pytest.mark.parametrize(
    "plan", [ASYNCTHINK, replace(LED, max_tokens=64, temperature=2.0, problems=2)], ids=["asyncthink", "manager"]
)
@pytest.mark.numerical
@pytest.mark.thorough
def test_each_token_has_the_log_probability_that_the_weights_of_its_version_give_it(plan: Rollout):
    """Also the first after new weights: what an agent has seen is read again."""
    settings = RlSettings(plan, steps=5, learning_rate=1e-3, reward=by_sample, ahead=3)  # type: ignore[arg-type]
    engine = LocalEngine.open(TINY, threaded=False)
    weights = [noise(Decoder.load(TINY), step) for step in range(5)]

    async def go() -> list[Batch]:
        source, batches = Episodes(settings), []
        async with source.working():
            for step in range(5):
                await engine.update_weights(weights[step], str(step))
                batches.append(await source.collect(engine, step, Clock(), lambda episode: None))
        return batches

    seen: set[int] = set()
    mixed = 0
    for step, batch in enumerate(asyncio.run(go())):
        found = [under(weights[version], batch.rows) for version in range(step + 1)]
        for i, row in enumerate(batch.rows):
            for at in (at for at, on in enumerate(row.trained) if on):
                assert row.logprobs[at] == pytest.approx(found[step - row.age[at]][i][at], abs=2e-4)
            of = {age for age, on in zip(row.age, row.trained, strict=True) if on}
            seen, mixed = seen | of, mixed + (len(of) > 1)
    assert max(seen) > 0 and mixed > 0, "rows that several weights drew"


RL = RlSettings(ASYNCTHINK, steps=4, learning_rate=1e-3, warmup=0, decay=False, save_every=1, ahead=2)


class Slow(EmbeddedBackend):
    """Takes an hour for a step, and another to save it, on the clock that event loops see."""

    now = 0.0

    def optim_step(self, learning_rate: float, clip: float) -> float:
        Slow.now += 3600
        return super().optim_step(learning_rate, clip)

    def save(self, folder: Path) -> None:
        Slow.now += 3600
        super().save(folder)


def trained(run: Path, settings: RlSettings = RL) -> list[dict[str, Any]]:
    """Train in a folder, or go on; metrics without seconds."""
    folder = RunFolder.open(run) if (run / "config.json").exists() else RunFolder.create(run, "train", None)
    backend = Slow(Decoder.load(TINY), LocalEngine.open(TINY, threaded=False), TINY)
    train_policy(backend, Episodes(settings), settings, folder, lambda line: None)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def test_training_repeats_to_the_bit_and_goes_on_with_the_problems_that_were_under_way(tmp_path: Path):
    lines = trained(tmp_path / "one")
    assert trained(tmp_path / "two") == lines
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert all(line["underway"] == 2 and line["drawn_groups"] == 2 for line in lines)
    assert all(line["logprob_difference_max"] < 1e-3 for line in lines if line["logprob_difference_max"] is not None)
    assert max(line["age_max"] or 0 for line in lines) > 0
    shorter = replace(RL, steps=2)
    assert trained(tmp_path / "cut", shorter) == lines[:2]
    place = load_state(checkpoint.saved(tmp_path / "cut")[-1] / "problems.json", State)
    again = trained(tmp_path / "cut")
    assert again[:2] == lines[:2] and [line["step"] for line in again] == [1, 2, 3, 4]
    assert len(place.underway) == 2 and again[2]["age_max"] == 0, "they were attempted again, by the newest weights"


def test_training_time_does_not_count_for_waiting_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Steps and checkpoints of an hour each, deadlines of half an hour."""
    real = asyncio.BaseEventLoop.time
    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda loop: real(loop) + Slow.now)
    seen: list[Episode] = []

    def noted(episode: Episode) -> AsyncThinkScore:
        seen.append(episode)
        return by_sample(episode)

    limited = replace(ASYNCTHINK, limits=replace(ASYNCTHINK.limits, episode_seconds=1800, agent_seconds=1800))
    trained(tmp_path, replace(RL, rollout=limited, reward=noted))  # type: ignore[arg-type]
    spread = {len({span.policy_version for span in trace.spans}) for e in seen for trace in e.traces}
    assert max(spread) > 2, "the prompt's, which is none, and those of two steps"
    assert {episode.stop for episode in seen} <= set(StopReason) - {StopReason.DEADLINE}
    assert max(episode.seconds or 0 for episode in seen) < 1800
