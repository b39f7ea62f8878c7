"""What experiments on real models share: plug-ins that these name by reference, such as
`credit.kind=papers.variants:Permuted`.
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
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.adapters import adapter_in, base_of, is_adapter
from orgthink.models.trainable import resolve_device
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.training.episodes import Episodes, grouped, whole_groups
from orgthink.training.policy_loss import PolicyLoss
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


class _Stored(Episodes):
    """The rollouts of another training, step by step, in place of own ones."""

    def __init__(self, settings: RlSettings, folder: Path) -> None:
        super().__init__(settings)
        self._steps: Iterator[tuple[int | None, Iterator[Episode]]] = groupby(
            RunFolder.open(folder).episodes(), lambda episode: episode.step
        )

    async def collect(self, sampler: Engine, step: int, clock: Clock, record: Record) -> Batch:
        settings, trains = self._settings, self._settings.rollout.trains
        found = next((list(stored) for number, stored in self._steps if number == step + 1), None)
        if found is None:
            raise UserError(f"the other training has stored no step {step + 1}: let it end first")
        episodes = whole_groups(found)
        rewards = {episode.id: score_of(settings.reward, episode) for episode in episodes}
        accepted = advantages_of(settings.credit, grouped(episodes, rewards))
        # Another policy sampled them, so no token counts as fresh.
        rows = [row for e in episodes if e.id in accepted for row in policy_rows(e, accepted[e.id], trains, step + 1)]
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


def imitation(recipe: Policy) -> Replay:
    """Rejection sampling: imitates the attempts of another training that are all right. Each ratio is 1, so the
    gradient is that of supervised fine-tuning."""
    settings = replace(recipe.settings, credit=AcceptedCredit(), loss=PolicyLoss(old="pois"))
    return Replay(settings=settings, model=None)


async def roles(rest: str, *, threaded: bool = True, slots: int = 256, **settings: Any) -> Engine:
    """The local engine with an adapter for each role: `--model papers.variants:roles:FOLDER,FOLDER`. The last
    adapter of a role counts."""
    found = [place for folder in rest.split(",") for place in sorted(Path(folder).iterdir()) if is_adapter(place)]
    base, device = engine_spec(base_of(found[0])).folder, resolve_device("auto")
    engine = await open_local(str(base), threaded=threaded, slots=slots, device=device, **settings)
    assert isinstance(engine, LocalEngine)
    await engine.update_adapters({place.name: adapter_in(place) for place in found}, "roles")
    return engine


async def cuda(rest: str, *, threaded: bool = True, slots: int = 256, **settings: Any) -> Engine:
    """The local engine on a GPU, for evaluations: `--model papers.variants:cuda:FOLDER`."""
    return await open_local(str(engine_spec(rest).folder), threaded=threaded, slots=slots, device="cuda", **settings)
