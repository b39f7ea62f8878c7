"""A bug in one attempt, or in the grader, ends that attempt and leaves out its group; the training goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import pytest
from echo import ECHO
from registered import register
from tiny_policy import TINY

from orgthink.credit.shared import SharedCredit
from orgthink.engines.engine import Chunk, Context
from orgthink.engines.local.engine import LocalEngine
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.models.decoder import Decoder
from orgthink.organizations import ORGANIZATIONS
from orgthink.record.episode import Episode, Grade, Message, Problem, Sampling
from orgthink.record.folder import RunFolder
from orgthink.rewards import Score
from orgthink.runtime.budget import Limits
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tasks import TASKS
from orgthink.tasks.task import Solution, Split, Task
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.episodes import Episodes
from orgthink.training.rl import train_policy
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout, roll_out
from orgthink.util.errors import ToolError, UserError

pytestmark = pytest.mark.usefixtures("tiny_policy")


@dataclass
class Clumsy(Task):
    """A grader with a bug at the answers to some problems. It knows the threads in which it worked."""

    bad: int = 0
    name: str = "clumsy"
    threads: set[int] = field(default_factory=set)

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        for number in range(1_000_000):
            yield Problem(f"clumsy/{number}", self.name, f"{number % 10} of 3", data={"answer": number % 10})

    def grade(self, problem: Problem, answer: str) -> Grade:
        self.threads.add(threading.get_ident())
        if int(problem.id.partition("/")[2]) < self.bad:
            raise ZeroDivisionError("a bug of the grader")
        return Grade(len(answer) % 2, 1)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return ECHO.solutions(problem, answer)


@dataclass(frozen=True)
class Stumbling(Organization):
    """One agent, whose second attempt at the first problem meets a bug."""

    at: str = "clumsy/0"
    name: str = "stumbling"
    roles = ("thinker",)

    async def run(self, problem: Problem, session: Session) -> str | None:
        answer = await session.agent("thinker", (Message("user", problem.text),)).complete()
        if session.sample == 1 and problem.id == self.at:
            raise KeyError("a bug of the organization")
        return answer


ROLLOUT = Rollout("clumsy", OrganizationSpec("stumbling"), Limits(max_tokens=8), max_tokens=8, problems=3, group=2)
SOUND = replace(ROLLOUT, organization=OrganizationSpec("stumbling", {"at": ""}))
SETTINGS = RlSettings(ROLLOUT, steps=1, learning_rate=1e-3)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Clumsy:
    task = Clumsy()
    register(monkeypatch, ORGANIZATIONS, stumbling=Stumbling)
    register(monkeypatch, TASKS, clumsy=task)
    return task


def trained(run: Path, settings: RlSettings = SETTINGS) -> tuple[list[Episode], dict[str, int], str]:
    """Train, in a run that may have begun; the stored episodes, the metrics and the crashes."""
    folder, lines = RunFolder.open(run) if run.is_dir() else RunFolder.create(run, "train", None), []
    backend = EmbeddedBackend(Decoder.load(TINY), LocalEngine.open(TINY, threaded=False), TINY)
    train_policy(backend, Episodes(settings), settings, folder, lines.append)
    crashes = run / "crashes.log"
    return list(folder.episodes()), lines[-1], crashes.read_text() if crashes.is_file() else ""


def test_a_bug_of_an_attempt_leaves_out_its_group(tmp_path: Path, task: Clumsy) -> None:
    stored, metrics, crashes = trained(tmp_path / "run", replace(SETTINGS, steps=2))
    broken = {episode.problem.id for episode in stored if episode.error}
    assert broken == {"clumsy/0"} and len({e.problem.id for e in stored}) == 6 and metrics["step"] == 2
    assert crashes.startswith("clumsy/0|stumbling|1\n") and crashes.count("Traceback") == 1
    assert "a bug of the organization" in crashes and "test_training_bugs.py" in crashes


def test_an_attempt_that_a_bug_ended_keeps_what_was_sampled(task: Clumsy) -> None:
    engine, ends = LocalEngine.open(TINY, threaded=False), list[Episode]()
    problems = list(islice(task.problems("train", 0), 1))
    found = asyncio.run(roll_out(ROLLOUT, problems, engine, 0, crash=lambda name, bug: str(bug), record=ends.append))
    assert sorted(episode.sample for episode in ends) == [0, 1]
    (broken,) = (episode for episode in found if episode.error)
    assert broken.sample == 1 and sum(trace.steps for trace in broken.traces) > 0
    assert broken in ends


def test_a_bug_of_the_grader_leaves_out_a_group(tmp_path: Path, task: Clumsy) -> None:
    task.bad = 1
    stored, metrics, crashes = trained(tmp_path / "run", replace(SETTINGS, rollout=SOUND))
    assert {episode.problem.id for episode in stored if episode.error} == {"clumsy/0"}
    assert metrics["drawn_groups"] == 3 and metrics["broken_groups"] == 1
    assert crashes.count("a bug of the grader") >= 2, "of each of its attempts"


@dataclass(frozen=True)
class Picky:
    """A reward with a bug, such as of a grader that it asks, in the second attempt at each of the first problems."""

    bad: int

    def __call__(self, episode: Episode) -> Score:
        if episode.sample == 1 and int(episode.problem.id.partition("/")[2]) < self.bad:
            raise ToolError("the sandbox is gone")
        return Score(float(len(episode.answer or "") % 2))


def test_a_bug_of_a_reward_leaves_out_a_group(tmp_path: Path, task: Clumsy) -> None:
    stored, metrics, crashes = trained(tmp_path / "run", replace(SETTINGS, rollout=SOUND, reward=Picky(1)))
    assert len(stored) == 6
    assert metrics["drawn_groups"] == 3 and metrics["broken_groups"] == 1
    assert crashes.startswith("clumsy/0|stumbling|1|1\n") and crashes.count("ToolError: the sandbox is gone") == 1
    with pytest.raises(UserError, match="2 groups have no reward, such as that of clumsy/0"):
        trained(tmp_path / "worse", replace(SETTINGS, rollout=SOUND, reward=Picky(2)))


@dataclass(frozen=True)
class Undecided(SharedCredit):
    """A credit that fails at groups of the second step."""

    def __call__(self, groups: Mapping[str, Mapping[str, float]]) -> Mapping[str, float]:
        if "clumsy/3" in groups:
            raise KeyError("a bug of the credit")
        return SharedCredit.__call__(self, groups)


@dataclass(frozen=True)
class Late(Picky):
    """A reward with a bug in most groups of the second step."""

    def __call__(self, episode: Episode) -> Score:
        return Picky.__call__(self, episode) if episode.step == 2 else Score(float(episode.sample))


@pytest.mark.parametrize("plugin", ["reward", "credit", "grader", "refusing grader"])
def test_a_step_that_a_plugin_ends_is_recorded_and_once_after_a_resume(
    plugin: str, tmp_path: Path, task: Clumsy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, settings = tmp_path / "run", replace(SETTINGS, rollout=SOUND, steps=2)
    failing = {"reward": replace(settings, reward=Late(6)), "credit": replace(settings, credit=Undecided())}
    grade = Clumsy.grade

    def grade_worse(self: Clumsy, problem: Problem, answer: str) -> Grade:
        if problem.id in ("clumsy/3", "clumsy/4"):
            raise UserError("the grader is not installed") if plugin == "refusing grader" else KeyError("a bug")
        return grade(self, problem, answer)

    with monkeypatch.context() as patch:
        if "grader" in plugin:
            patch.setattr(Clumsy, "grade", grade_worse)
        with pytest.raises(UserError):
            trained(run, failing.get(plugin, settings))
    stored = list(RunFolder.open(run).episodes())
    assert [episode.step for episode in stored][:6] == [1] * 6 and {episode.step for episode in stored[6:]} == {2}
    assert all(trace.spans for episode in stored for trace in episode.traces), "with the sampled text"
    assert f"step 1 is saved: continue with orgthink train --resume {run}" in capsys.readouterr().err
    again, metrics, _ = trained(run, settings)
    assert sorted({episode.id for episode in again}) == sorted(episode.id for episode in again)
    assert len(again) == 12 and metrics["step"] == 2


@pytest.mark.parametrize(
    "error", [UserError("the sampler drifts"), MemoryError("in the middle of an update")], ids=repr
)
def test_a_step_that_an_error_ends_after_its_rollouts_is_recorded(
    error: Exception, tmp_path: Path, task: Clumsy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(EmbeddedBackend, "forward_backward", fail)
    with pytest.raises(type(error)):
        trained(tmp_path / "run", replace(SETTINGS, rollout=SOUND))
    assert len(list(RunFolder.open(tmp_path / "run").episodes())) == 6


def test_a_number_of_an_engine_that_is_none_leaves_out_a_group(
    tmp_path: Path, task: Clumsy, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = LocalEngine.stream

    async def forged(self: LocalEngine, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        async for chunk in sound(self, context, sampling):
            wrong = context.messages[-1].content == "0 of 3"
            yield replace(chunk, logprobs=(-1e300,) * len(chunk.pieces)) if wrong else chunk

    monkeypatch.setattr(LocalEngine, "stream", forged)
    stored, metrics, crashes = trained(tmp_path / "run", replace(SETTINGS, rollout=SOUND))
    assert {episode.problem.id for episode in stored if episode.error} == {"clumsy/0"}
    assert metrics["step"] == 1 and "a log-probability of agent 'thinker' is invalid" in crashes


def test_a_bug_in_most_groups_ends_the_training_with_one_line(tmp_path: Path, task: Clumsy) -> None:
    task.bad = 2
    with pytest.raises(
        UserError, match=r"2 groups failed, such as episode clumsy/0\S+ \(\w+Error in test_training_bugs.py, line"
    ):
        trained(tmp_path / "run")
    assert "Traceback" in (tmp_path / "run" / "crashes.log").read_text()
