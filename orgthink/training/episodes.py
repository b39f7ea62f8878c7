"""Rows from whole episodes: reinforcement learning of an organizer and its workers, or of a manager.

AsyncThink (section 3.2) trains the organizer and the workers. ParaManager (section 3.3) trains the manager only. A step
attempts each of its problems G times and rewards every episode. All tokens that the policy sampled in an episode share
one advantage, which is relative to the group of attempts at the same problem.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from orgthink.engines.engine import Engine
from orgthink.measure.accuracy import mixed
from orgthink.record.episode import Episode, Origin, Problem, Trace
from orgthink.record.guard import Crash, engine_failed, failure_message, raised
from orgthink.rewards import Score
from orgthink.runtime.agent import Backing
from orgthink.training.checkpoint import load_state, save_state
from orgthink.training.masking import ages, sampled_entropy
from orgthink.training.rl import Batch, Clock, Record
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Groups, ProblemStream, frozen, roll_out
from orgthink.training.rows import policy_rows
from orgthink.training.scores import advantages_of, check_of, score_of
from orgthink.util.errors import UserError, user_input


@dataclass(frozen=True, slots=True)
class State:
    """State of `Episodes` between steps."""

    drawn: int
    """Number of problems taken from the task's stream so far."""
    underway: tuple[Problem, ...] = ()
    """Problems among these whose groups have not been trained on yet."""


class _Attempted(NamedTuple):
    """The attempted groups of a step."""

    groups: int
    """Number of attempted groups."""
    episodes: list[Episode]
    """Graded episodes of the groups without engine errors."""
    began: Mapping[str, int]
    """Problem id → policy version at the start of its group, for groups that may have started in an earlier step."""


class Episodes:
    """A source of rows whose steps attempt problems in groups.

    Its state between steps is the position in the stream of problems and, with `ahead`, the groups in progress. The
    episodes in progress are not saved: a resumed run attempts their problems again.
    """

    def __init__(self, settings: RlSettings) -> None:
        self._settings, self._plan = settings, settings.rollout
        self._problems = ProblemStream(self._plan, settings.seed)
        self._models: dict[str, Backing] = {}
        self._groups = Groups()
        self._crash: Crash = raised
        self._again: list[Problem] = []
        """Problems whose groups were in progress when the run ended."""

    @asynccontextmanager
    async def working(self, crash: Crash = raised) -> AsyncIterator[None]:
        self._crash = crash
        async with frozen(self._plan.models) as self._models:
            try:
                yield
            finally:
                self._again = self._unfinished
                await self._groups.cancel()

    @property
    def _unfinished(self) -> list[Problem]:
        return [*self._groups.problems, *self._again]

    async def collect(self, sampler: Engine, step: int, clock: Clock, record: Record) -> Batch:
        settings = self._settings
        seed = random.Random(f"{settings.seed}/{step}").getrandbits(31)
        attempted = self._first_finished if settings.ahead else self._all
        count, attempts, began = await attempted(sampler, step, seed, clock, record)
        episodes = [episode.of_step(step + 1) for episode in attempts]
        rewards = self._rewards(episodes)
        episodes = [episode for episode in episodes if episode.id in rewards]
        known = set(mixed(episodes))
        selected = [e for e in episodes if e.problem.id in known] if settings.mixed else episodes
        dropped = len({e.problem.id for e in episodes} - known) if settings.mixed else 0
        groups = grouped(selected, rewards, random.Random(seed) if settings.shuffled else None)
        require_version(episodes, str(step), self._plan.trains, began)
        with user_input():
            advantages = advantages_of(settings.credit, groups, self._crash)
            rewarded = [episode for episode in selected if episode.id in advantages]
            rows = [row for e in rewarded for row in policy_rows(e, advantages[e.id], self._plan.trains, step)]
        metrics = {
            **settings.measure(episodes, rewards),
            "drawn_groups": count,
            "mixed_groups": len(known),
            "groups": count - dropped,
            "broken_groups": count - dropped - len(groups),
            "flat_groups": len(groups) - len({episode.problem.id for episode in rewarded}),
            **({"underway": len(self._groups.problems), **ages(rows)} if settings.ahead else {}),
        }
        sampled = (trace for episode in episodes for trace in episode.traces if self._plan.trains(trace))
        return Batch(rows, metrics, sampled_entropy(sampled))

    def _rewards(self, episodes: Sequence[Episode]) -> dict[str, Score]:
        """The rewards by episode id, except in groups in which the reward has a bug.

        UserError if it has a bug in more than half of the groups.
        """
        found: dict[str, Score] = {}
        bugs: dict[str, str] = {}
        for episode in episodes:
            try:
                found[episode.id] = score_of(self._settings.reward, episode)
            except UserError:
                raise
            except Exception as bug:
                bugs[episode.problem.id] = f"{episode.id} ({self._crash(episode.id, bug)})"
        groups = {episode.problem.id for episode in episodes}
        if 2 * len(bugs) > len(groups):
            raise UserError(f"{len(bugs)} groups have no reward, such as that of {next(iter(bugs.values()))}")
        return {episode.id: found[episode.id] for episode in episodes if episode.problem.id not in bugs}

    async def _all(self, sampler: Engine, step: int, seed: int, clock: Clock, record: Record) -> _Attempted:
        """The groups of a step's problems. Episodes are recorded as they end."""
        problems = self._problems.batch()
        clock.lap("problems")
        attempts = await roll_out(self._plan, problems, sampler, seed, self._models, self._crash, record)
        clock.lap("rollout")
        return _Attempted(len(problems), whole_groups(attempts), {})

    async def _first_finished(self, sampler: Engine, step: int, seed: int, clock: Clock, record: Record) -> _Attempted:
        """The first `problems` groups that finish. They are recorded with the step that trains on them."""
        plan, known = self._plan, self._unfinished
        wanted = plan.problems + self._settings.ahead - len(known)
        fresh = [*self._again, *self._problems.batch({problem.id for problem in known}, wanted)]
        self._again = []
        clock.lap("problems")
        for problem in fresh:
            self._groups.begin(problem, step, roll_out(plan, [problem], sampler, seed, self._models, self._crash))
        groups = await self._groups.finished(plan.problems)
        attempts = [episode for group in groups for episode in group.attempts.result()]
        for episode in attempts:
            record(episode)
        clock.lap("rollout")
        return _Attempted(len(groups), whole_groups(attempts), {group.problem.id: group.began for group in groups})

    def snapshot(self) -> Callable[[Path], None]:
        state = State(self._problems.drawn, tuple(self._unfinished))
        return lambda folder: save_state(folder / "problems.json", state)

    def load(self, folder: Path) -> None:
        state = load_state(folder / "problems.json", State)
        self._problems = ProblemStream(self._plan, self._settings.seed, state.drawn)
        self._again = list(state.underway)


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
    episodes: Sequence[Episode],
    version: str,
    trained: Callable[[Trace], bool] = lambda trace: True,
    began: Mapping[str, int] | None = None,
) -> None:
    """Check that `version` of the policy sampled all trained traces and no others.

    Problems in `began` may also have spans of older versions, from the given one on. UserError names the first trace
    that breaks the rule.
    """
    for episode in episodes:
        oldest = (began or {}).get(episode.problem.id)
        own = {version} if oldest is None else {str(one) for one in range(oldest, int(version) + 1)}
        for trace in episode.traces:
            for span in trace.spans:
                if span.origin is Origin.SAMPLED and (span.policy_version in own) != trained(trace):
                    message = _mistaken(trace, span.policy_version, version, trained(trace))
                    raise UserError(f"episode {episode.id}, {trace.agent}: {message}")


def _mistaken(trace: Trace, sampled_by: str | None, version: str, trained: bool) -> str:
    if not trained:
        return f"sampled by the policy, but role {trace.role} is not trained: name a model for it in rollout.models"
    return f"sampled by version {sampled_by}, not by {version}: the sampler did not take the new weights"


def grouped(
    episodes: Sequence[Episode], rewards: Mapping[str, Score], shuffle: random.Random | None = None
) -> dict[str, dict[str, float]]:
    """Problem id → episode id → R. With `shuffle`, the rewards of each group are permuted at random."""
    groups: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for episode in episodes:
        groups[episode.problem.id][episode.id] = rewards[episode.id].total
    if shuffle is not None:
        for group in groups.values():
            permuted = shuffle.sample(list(group.values()), len(group))
            group.update(zip(group, permuted, strict=True))
    return dict(groups)
