"""A bug in a chain of MarsRL ends that chain; the others are trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
from mars_words import problems_file
from terse import TERSE
from test_queue import Paced

from orgthink.record.episode import Grade, Problem
from orgthink.record.guard import is_storable
from orgthink.runtime.clock import run_virtual
from orgthink.training.marsrl.chain import Rules
from orgthink.training.marsrl.pipeline import Chains
from orgthink.training.marsrl.queue import Queue
from orgthink.training.marsrl.rollout import ROLES, MarsRollout
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.training.rl import Batch, Clock
from orgthink.util.errors import ToolError, UserError

BUG = ZeroDivisionError("a bug of the grader")


def stumbling(
    folder: Path,
    schedule: str,
    bad: int,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception = BUG,
    roles: tuple[str, ...] = ROLES,
) -> Chains:
    """Chains of three problems a step: the grader raises an error at the answers to the first ones."""
    plan = MarsRollout(
        problems_file(folder, *range(7, 60)),
        TERSE,
        max_tokens=60,
        problems=3,
        group=2,
        live=6,
        schedule=schedule,
        roles=roles,
    )
    settings = MarsSettings(plan, steps=1, learning_rate=1e-3)
    first = [problem.id for problem, _ in zip(Chains(settings)._problems, range(bad), strict=False)]
    right = Rules._right

    def clumsy(self: Rules, problem: Problem, answer: str) -> Grade:
        if problem.id in first:
            raise error
        return right(self, problem, answer)

    monkeypatch.setattr(Rules, "_right", clumsy)
    return (Queue if schedule == "queue" else Chains)(settings)


def collected(source: Chains) -> tuple[Batch, list[str]]:
    """A step, and the crashes."""
    crashes = list[str]()

    def crash(name: str, error: Exception) -> str:
        crashes.append(name)
        return str(error)

    async def step() -> Batch:
        async with source.working(crash):
            return await source.collect(Paced(lambda asked, luck: " w <ANSWER> 7 </ANSWER>"), 0, Clock())

    return run_virtual(step()), crashes


@pytest.mark.parametrize("error", [BUG, ToolError("the sandbox is gone")], ids=["bug", "failure"])
@pytest.mark.parametrize("roles", [ROLES, ("solver",)], ids=["all roles", "the solver"])
@pytest.mark.parametrize("schedule", ["pipeline", "queue", "whole"])
def test_a_grader_that_stumbles_breaks_its_groups_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str, roles: tuple[str, ...], error: Exception
) -> None:
    """Also where nothing comes after the outputs, so that they are first graded when they are to be trained on."""
    batch, crashes = collected(stumbling(tmp_path, schedule, 1, monkeypatch, error, roles))
    assert crashes and batch.metrics["broken_groups"] >= 1
    assert batch.rows or batch.episodes
    assert not {row.episode.partition("#")[0] for row in batch.rows} & {name.partition("#")[0] for name in crashes}


@pytest.mark.parametrize("schedule", ["pipeline", "queue", "whole"])
def test_a_bug_ends_its_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str) -> None:
    batch, crashes = collected(stumbling(tmp_path, schedule, 1, monkeypatch))
    assert len(crashes) == 1 and batch.metrics["broken_groups"] == 1
    assert batch.rows or batch.episodes
    assert crashes[0].partition("|")[0] not in {episode.problem.id for episode in batch.episodes}


@pytest.mark.parametrize("schedule", ["pipeline", "queue"])
def test_bugs_in_most_chains_end_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str) -> None:
    source = stumbling(tmp_path, schedule, 50, monkeypatch)
    with pytest.raises(UserError, match=r"failed, such as .*a bug of the grader"):
        collected(source)


@pytest.mark.parametrize("roles", [ROLES, ("solver",)], ids=["all roles", "the solver"])
@pytest.mark.parametrize("schedule", ["pipeline", "queue", "whole"])
def test_what_was_sampled_in_a_step_that_the_grader_ends_can_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str, roles: tuple[str, ...]
) -> None:
    source = stumbling(tmp_path, schedule, 50, monkeypatch, roles=roles)
    with pytest.raises(UserError):
        collected(source)
    assert len(source.sampled) >= 3 and all(is_storable(episode) for episode in source.sampled)
    assert len({episode.id for episode in source.sampled}) == len(source.sampled)
    assert all(sum(t.role == "solver" and bool(t.spans) for t in e.traces) == 2 for e in source.sampled)
