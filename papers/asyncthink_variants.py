"""What the experiment on SmolLM2 compares AsyncThink with: plug-ins that its commands name by reference, such as
`rollout.organization.organization=papers.asyncthink_variants:Barrier`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from orgthink.credit.accepted import AcceptedCredit
from orgthink.credit.shared import SharedCredit, credit
from orgthink.engines import engine_spec, open_local
from orgthink.engines.engine import Engine
from orgthink.grammar.actions import Answer, Fork, Join, Return
from orgthink.grammar.asyncthink import DIALECT, organizer_scanner, worker_scanner
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Episode, Problem
from orgthink.record.folder import RunFolder
from orgthink.runtime.agent import Agent, Result
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.training.coldstart.countdown import ScanTeacher
from orgthink.training.coldstart.teachers import program_of
from orgthink.training.episodes import Episodes, grouped, whole_groups
from orgthink.training.policy_loss import PolicyLoss
from orgthink.training.recipes.any_model import ASYNCTHINK
from orgthink.training.recipes.jobs import Policy
from orgthink.training.rl import Batch, Clock, Record
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rows import policy_rows
from orgthink.training.scores import advantages_of, score_of
from orgthink.util.errors import UserError


@dataclass(frozen=True, slots=True)
class Permuted(SharedCredit):
    """A control that must not learn: the rewards of a step are dealt out to its episodes at random."""

    def __call__(self, groups: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        names = sorted(name for group in groups.values() for name in group)
        rewards = [reward for group in groups.values() for reward in group.values()]
        random.Random("".join(names)).shuffle(rewards)  # the names hold the step
        dealt = iter(rewards)
        return credit(
            {problem: {name: next(dealt) for name in group} for problem, group in groups.items()},
            self.normalise,
            delta=self.delta,
        )


class _WaitingForAll:
    """A session whose first Join waits for all forks that are under way; the others are then there at once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._forked: list[str] = []
        self._returned: dict[str, Result] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def fork(self, parent: Agent, key: str, *given: Any, **more: Any) -> None:
        self._session.fork(parent, key, *given, **more)
        self._forked.append(key)

    async def join(self, parent: Agent, key: str) -> Result:
        for each in self._forked:
            self._returned[each] = await self._session.join(parent, each)
        self._forked.clear()
        return self._returned.pop(key)


@dataclass(frozen=True)
class Barrier(AsyncThink):
    """AsyncThink whose organizer waits at its first Join for all of its workers, as threads that are joined together.
    The record, and so the critical path, has these joins there."""

    name: str = "barrier"

    async def run(self, problem: Problem, session: Session) -> str | None:
        return await AsyncThink.run(self, problem, _WaitingForAll(session))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Constant(Organization):
    """A constant policy for countdown: the parts are forked to so many workers, or to none, whatever the problem is.

    The beginning of the organizer's text, up to the last Fork, is given and takes no decoding steps. The model writes
    the rest, in which a further Fork has no effect.
    """

    prompts: str = "paper"
    """Prompt style."""
    workers: int = 3
    """Workers that are forked; 0: an organizer that never forks."""
    name: str = "constant"

    roles = ("organizer", "worker")

    async def run(self, problem: Problem, session: Session) -> str | None:
        capacity = session.capacity
        organizer = session.agent("organizer", prompt(self.prompts, "organizer", problem, capacity=capacity))
        firsts, how = [str(number) for number in sorted(problem.data["numbers"])[1:]], teacher(problem.task)
        text = f"{(how.shared if self.workers else how.openings)[0]} Parts: {how.comma.join(firsts)}."
        left = set[str]()
        for i in range(min(self.workers, len(firsts))):
            key, query = str(i + 1), _query(problem, firsts[i :: self.workers])
            values = {"capacity": capacity, "query": query, "context": problem.instruction}
            child = session.agent("worker", prompt(self.prompts, "worker", problem, **values))
            session.fork(organizer, key, child, _returned)
            text += f"\n{DIALECT.render(Fork(key, query))}"
            left.add(key)
        organizer.inject(text)
        async for action in organizer.act(organizer_scanner()):
            match action:
                case Answer(text):
                    return text.strip() or None
                case Join(key) if key in left:
                    left.remove(key)
                    result = await session.join(organizer, key)
                    organizer.inject(result.text, result.source, DIALECT.around(key, organizer.last_sampled))
        session.unanswered(organizer)
        return None


def teacher(task: str) -> ScanTeacher:
    """The teacher of a countdown."""
    return program_of(task).write.__self__  # type: ignore[attr-defined]  # a method


def _query(problem: Problem, firsts: list[str]) -> str:
    how, data = teacher(problem.task), problem.data
    values = {"numbers": how.comma.join(map(str, data["numbers"])), "target": data["target"]}
    return how.queries[0].format(firsts=how.conjunction.join(firsts), wanted=problem.required, **values)


async def _returned(worker: Agent) -> str | None:
    async for action in worker.act(worker_scanner()):
        if isinstance(action, Return):
            return action.text.strip()
    return None


class _Stored(Episodes):
    """The rollouts of another training, step by step, in place of own ones."""

    def __init__(self, settings: RlSettings, folder: Path) -> None:
        super().__init__(settings)
        self._steps: Iterator[tuple[int | None, Iterator[Episode]]] = groupby(
            RunFolder.open(folder).episodes(), lambda episode: episode.step
        )

    async def collect(self, sampler: Engine, step: int, clock: Clock, record: Record) -> Batch:
        settings = self._settings
        found = next((list(stored) for number, stored in self._steps if number == step + 1), None)
        if found is None:
            raise UserError(f"the other training has stored no step {step + 1}: let it end first")
        episodes = whole_groups(found)
        rewards = {episode.id: score_of(settings.reward, episode) for episode in episodes}
        accepted = advantages_of(settings.credit, grouped(episodes, rewards))
        # Another policy sampled them, so no token counts as fresh.
        rows = [row for e in episodes if e.id in accepted for row in policy_rows(e, accepted[e.id], version=step + 1)]
        return Batch(rows, {**settings.measure(episodes, rewards), "accepted": len(accepted)}, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(Policy):
    """Training on the stored rollouts of another training: the same episodes, steps and optimizer, another credit."""

    rollouts: str = ""
    """Run folder of that training."""

    def require(self) -> None:
        Policy.require(self)
        RunFolder.open(Path(self.rollouts))

    def source(self) -> Episodes:
        return _Stored(self.settings, Path(self.rollouts))


REJECTION_SAMPLING = Replay(
    settings=replace(ASYNCTHINK.settings, credit=AcceptedCredit(), loss=PolicyLoss(old="pois")), model=None
)
"""Imitates the attempts that are all right. Each ratio is 1, so the gradient is that of supervised fine-tuning."""


async def cuda(rest: str, *, threaded: bool = True, slots: int = 256, **settings: Any) -> Engine:
    """The local engine on a GPU, for evaluations: `--model papers.asyncthink_variants:cuda:FOLDER`."""
    return await open_local(str(engine_spec(rest).folder), threaded=threaded, slots=slots, device="cuda", **settings)
