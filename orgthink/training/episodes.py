"""Rows from whole episodes: reinforcement learning of an organizer and its workers, or of a manager.

AsyncThink (section 3.2) trains the organizer and the workers. ParaManager (section 3.3) trains the manager only. A step
attempts each of its problems G times and rewards every episode. All tokens that the policy sampled in an episode share
one advantage, which is relative to the group of attempts at the same problem.

`recorded_rows` makes such rows of an evaluation, for other trainers.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orgthink.engines.engine import Engine
from orgthink.evaluation.grading import grade
from orgthink.evaluation.plan import Evaluation, resolve
from orgthink.measure.accuracy import mixed
from orgthink.record.episode import Episode, Origin, Trace
from orgthink.record.folder import RunFolder
from orgthink.record.guard import Crash, engine_failed, failure_message, raised
from orgthink.runtime.agent import Backing
from orgthink.training.checkpoint import load_state, save_state
from orgthink.training.masking import sampled_entropy
from orgthink.training.policy_loss import weighted
from orgthink.training.rl import Batch, Clock, Record
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import ProblemStream, frozen, roll_out
from orgthink.training.rows import PolicyRow, policy_rows
from orgthink.training.scores import Groups, Parts, advantages_of, check_of, score_of
from orgthink.util.errors import UserError, user_input


@dataclass(frozen=True, slots=True)
class State:
    """State of `Episodes` between steps."""

    drawn: int
    """Number of problems taken from the task's stream so far."""


class Attempts:
    """The problems, frozen models and rewards of a training with one reward per episode."""

    def __init__(self, settings: Any) -> None:
        """`settings` have a `rollout`, a `reward` and a `seed`, as `OfEpisodes` says."""
        self._settings, self._plan = settings, settings.rollout
        self._problems = ProblemStream(self._plan, settings.seed)
        self._models: dict[str, Backing] = {}
        self._crash: Crash = raised

    @asynccontextmanager
    async def working(self, crash: Crash = raised) -> AsyncIterator[None]:
        self._crash = crash
        async with frozen(self._plan.models) as self._models:
            yield

    def _rewards(self, episodes: Sequence[Episode]) -> dict[str, Parts]:
        """The rewards by episode id, except in groups in which the reward has a bug.

        UserError if it has a bug in more than half of the groups.
        """
        found: dict[str, Parts] = {}
        bugs: dict[str, str] = {}
        for episode in episodes:
            try:
                found[episode.id] = score_of(self._settings.reward, episode)
            except UserError:
                raise
            except Exception as bug:
                bugs[episode.problem.id] = f"{episode.id} ({self._crash(episode.id, bug)})"
        if 2 * len(bugs) > len({episode.problem.id for episode in episodes}):
            raise UserError(f"{len(bugs)} groups have no reward, such as that of {next(iter(bugs.values()))}")
        return {episode.id: found[episode.id] for episode in episodes if episode.problem.id not in bugs}

    def snapshot(self) -> Callable[[Path], None]:
        state = State(self._problems.drawn)
        return lambda folder: save_state(folder / "problems.json", state)

    def load(self, folder: Path) -> None:
        self._problems = ProblemStream(
            self._plan, self._settings.seed, load_state(folder / "problems.json", State).drawn
        )


class Episodes(Attempts):
    """A source of rows whose steps attempt problems in groups."""

    async def collect(self, sampler: Engine, step: int, clock: Clock, record: Record) -> Batch:
        settings = self._settings
        seed = random.Random(f"{settings.seed}/{step}").getrandbits(31)
        problems = self._problems.batch()
        clock.lap("problems")
        attempts = await roll_out(self._plan, problems, sampler, seed, self._models, self._crash, record)
        clock.lap("rollout")
        episodes = [episode.of_step(step + 1) for episode in whole_groups(attempts)]
        rewards = self._rewards(episodes)
        episodes = [episode for episode in episodes if episode.id in rewards]
        known = set(mixed(episodes))
        selected = [e for e in episodes if e.problem.id in known] if settings.mixed else episodes
        dropped = len({e.problem.id for e in episodes} - known) if settings.mixed else 0
        groups = grouped(selected, rewards)
        require_version(episodes, str(step), self._plan.trains)
        rows = _rows(settings, selected, groups, step, self._crash)
        metrics = {
            **settings.measure(episodes, rewards),
            "drawn_groups": len(problems),
            "mixed_groups": len(known),
            "groups": len(problems) - dropped,
            "broken_groups": len(problems) - dropped - len(groups),
            "flat_groups": len(groups) - len({row.group for row in rows}),
        }
        sampled = (trace for episode in episodes for trace in episode.traces if self._plan.trains(trace))
        return Batch(rows, metrics, sampled_entropy(sampled))


def recorded_rows(folder: RunFolder, settings: RlSettings) -> list[PolicyRow]:
    """Rows of a recorded evaluation with their weights in the loss, problem by problem. Groups of equal rewards and
    with engine errors are left out; so are those whose outcomes are all equal, if only mixed groups are trained on.

    UserError if the run has one attempt a problem, is of another organization or of several models, is not finished, or
    leaves no row.
    """
    plan, rollout = folder.settings("eval", Evaluation), settings.rollout
    wanted, found = rollout.organization.organization, {how.organization for how in plan.organizations.values()}
    if len(plan.organizations) > 1 or found != {wanted}:
        names = ", ".join(plan.organizations)
        raise UserError(f"{folder.path} holds {names}: the recipe is for {wanted} by itself, see --organizations")
    if plan.samples < 2:
        raise UserError(f"{folder.path} has one attempt at each problem, and nothing to compare it with: --samples 8")
    resolved = resolve(plan)
    episodes = whole_groups([grade(one, resolved.task) for one in resolved.in_order(folder.episodes())])
    if any(count < plan.samples for count in Counter(episode.problem.id for episode in episodes).values()):
        raise UserError(f"{folder.path} is not finished, and half a group is no fair comparison: eval --resume it")
    sampled_by = {
        trace.model for episode in episodes for trace in episode.traces if trace.steps and rollout.trains(trace)
    }
    if len(sampled_by) > 1:
        names = ", ".join(sorted(map(str, sampled_by)))
        raise UserError(f"{folder.path}: {names} sampled what the recipe trains: name the frozen in rollout.models")
    if settings.mixed:
        known = set(mixed(episodes))
        episodes = [episode for episode in episodes if episode.problem.id in known]
    groups = grouped(episodes, {episode.id: score_of(settings.reward, episode) for episode in episodes})
    rows = _rows(settings, episodes, groups)
    if not rows:
        raise UserError(f"{folder.path} has no group whose attempts differ in reward: there is nothing to train on")
    return weighted(rows, settings.loss.reduction)


def _rows(
    settings: RlSettings,
    episodes: Sequence[Episode],
    groups: Groups,
    version: int | None = None,
    crash: Callable[[str, Exception], str] | None = None,
) -> list[PolicyRow]:
    """The rows of the episodes with an advantage. `version` is that of the newest weights."""
    with user_input():
        advantages = advantages_of(settings.credit, groups, crash)
        rewarded = [episode for episode in episodes if episode.id in advantages]
        return [row for e in rewarded for row in policy_rows(e, advantages[e.id], settings.rollout.trains, version)]


def whole_groups(episodes: Sequence[Episode]) -> list[Episode]:
    """Episodes of the groups without engine errors and bugs. A part of a group would not be a fair comparison.

    UserError if more than half of the groups have such errors.
    """
    failed = {episode.problem.id: episode for episode in episodes if engine_failed(episode)}
    if 2 * len(failed) > len({episode.problem.id for episode in episodes}):
        first = next(iter(failed.values()))
        message = failure_message(first)
        raise UserError(f"{len(failed)} groups failed, such as episode {first.id} ({message}){check_of(message)}")
    return [episode for episode in episodes if episode.problem.id not in failed]


def require_version(
    episodes: Sequence[Episode], version: str, trained: Callable[[Trace], bool] = lambda trace: True
) -> None:
    """Check that `version` of the policy sampled all trained traces and no others.

    UserError names the first trace that breaks the rule.
    """
    for episode in episodes:
        for trace in episode.traces:
            for span in trace.spans:
                if span.origin is Origin.SAMPLED and (span.policy_version == version) != trained(trace):
                    message = _mistaken(trace, span.policy_version, version, trained(trace))
                    raise UserError(f"episode {episode.id}, {trace.agent}: {message}")


def _mistaken(trace: Trace, sampled_by: str | None, version: str, trained: bool) -> str:
    if not trained:
        return f"sampled by the policy, but role {trace.role} is not trained: name a model for it in rollout.models"
    return f"sampled by version {sampled_by}, not by {version}: the sampler did not take the new weights"


def grouped(episodes: Sequence[Episode], rewards: Mapping[str, Parts]) -> dict[str, dict[str, float]]:
    """Problem id → episode id → R."""
    groups: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for episode in episodes:
        groups[episode.problem.id][episode.id] = rewards[episode.id]["reward"]
    return dict(groups)
