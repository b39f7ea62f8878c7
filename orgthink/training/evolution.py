"""Training without backpropagation: evolution strategies over the weights of an adapter.

Each step evaluates a population: pairs of adapters θ + σε and θ − σε around the trained one, θ. With z, the rewards of
the N members standardised over the population, the update is that of Qiu et al. (arXiv 2509.24372), with the antithetic
pairs of Salimans et al. (arXiv 1703.03864):

    θ ← θ + α / N · Σ z ε

Only sampling is needed: no gradient, no log-probability, no mask. A member is an adapter of the local engine, so all
members decode in one batch. The members of a pair get the same problems and random numbers. ε is not stored: its seed
follows from the settings, the step and the pair.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from math import isfinite, sqrt
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import torch
from torch import Tensor

from orgthink.engines.engine import Engine
from orgthink.measure.usage import sampled_tokens
from orgthink.models.decoder import Decoder
from orgthink.models.lora import ADAPTER, Adapter, LoraSettings, matrices_of
from orgthink.models.model_files import ModelFiles
from orgthink.record.episode import Episode, episode_id
from orgthink.record.folder import RunFolder
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.training import checkpoint
from orgthink.training.episodes import Attempts, require_version, whole_groups
from orgthink.training.gradients import UNSOUND
from orgthink.training.optimization import LoopSettings, Unmoved
from orgthink.training.rl import Clock, Progress, run_steps
from orgthink.training.rl_settings import AnyReward, OfEpisodes
from orgthink.training.rollout import Rollout, roll_out
from orgthink.util.concurrency import run_all
from orgthink.util.errors import UserError, require_above_zero, require_at_least


@dataclass(frozen=True, slots=True)
class EvolutionSettings(OfEpisodes, LoopSettings):
    """Settings that determine the result, together with the model."""

    rollout: Rollout
    """Problems, organization and budgets; `group` is the number of attempts of each member at each problem."""
    reward: AnyReward = field(default_factory=AsyncThinkReward)
    """Reward R of an episode. The mean over a member's episodes is its fitness."""
    population: int = 16
    """N: members of a step, in pairs."""
    sigma: float = 0.01
    """σ: standard deviation of the noise on each weight of the adapter."""

    def __post_init__(self) -> None:
        LoopSettings.__post_init__(self)
        require_at_least(2, self, "population")
        require_above_zero(self, "sigma")
        if self.population % 2:
            raise ValueError(f"population is {self.population}: members come in pairs, so it must be even")

    def bounds(self) -> dict[str, int | None]:
        own = OfEpisodes.bounds(self)
        return {name: None if value is None else value * self.population for name, value in own.items()}


class Population:
    """The trained adapter, and the sampler that holds the members around it."""

    def __init__(
        self,
        model: Decoder,
        lora: LoraSettings,
        sampler: Engine,
        base: Path,
        settings: EvolutionSettings,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        """`model` has the adapter, `lora` describes it. `sampler` and `base`, whose other files are copied into
        checkpoints, are of the model without it."""
        self.sampler, self._model, self._lora, self._settings = sampler, model, lora, settings
        self._model_files = ModelFiles(base, template)

    @property
    def _center(self) -> dict[str, Tensor]:
        return matrices_of(self._model.adapters[ADAPTER])

    def _noise(self, version: str, pair: int) -> dict[str, Tensor]:
        """ε of a pair."""
        seed = random.Random(f"{self._settings.seed}/{version}/noise {pair}").getrandbits(63)
        generator = torch.Generator().manual_seed(seed)
        return {name: torch.randn(weight.shape, generator=generator) for name, weight in self._center.items()}

    async def sync_sampler(self, version: str) -> None:
        await self.sampler.update_adapters(self._around(version), version)

    @torch.no_grad()
    def _around(self, version: str) -> dict[str, Adapter]:
        """The adapter of each member, by its place: the members of a pair are neighbours."""
        found, center, sigma = dict[str, Adapter](), self._center, self._settings.sigma
        for pair in range(self._settings.population // 2):
            noise = self._noise(version, pair)
            for place, step in ((2 * pair, sigma), (2 * pair + 1, -sigma)):
                weights = {name: weight.add(noise[name], alpha=step) for name, weight in center.items()}
                found[str(place)] = Adapter(self._lora, weights)
        return found

    @torch.no_grad()
    def move(self, version: str, fitness: list[float]) -> float | None:
        """Update the adapter by the fitness of the members of this version. Returns the norm of the estimated gradient
        of the mean reward; `None`, without an update, if all are equal. UserError if it, or a weight, is not finite."""
        count, spread = len(fitness), pstdev(fitness)
        if spread == 0:
            return None
        center = self._center
        total = {name: torch.zeros_like(weight) for name, weight in center.items()}
        for pair in range(count // 2):
            z = (fitness[2 * pair] - fitness[2 * pair + 1]) / spread  # of both members: the mean cancels
            for name, noise in self._noise(version, pair).items():
                total[name].add_(noise, alpha=z / count)
        norm = sqrt(sum(float(each.double().square().sum()) for each in total.values())) * spread / self._settings.sigma
        if not isfinite(norm):
            raise UserError(f"the gradient norm is {norm}: {UNSOUND}")
        moved = {name: weight.add(total[name], alpha=self._settings.learning_rate) for name, weight in center.items()}
        if not all(bool(weight.isfinite().all()) for weight in moved.values()):
            raise UserError(f"weights after step {int(version) + 1} are not finite: {UNSOUND}")
        for name, weight in center.items():
            weight.copy_(moved[name])
        return norm

    def save(self, folder: Path) -> None:
        self._model_files.write(folder / "model")
        checkpoint.store(folder, self._model, None)

    def load(self, folder: Path) -> None:
        checkpoint.load(folder, self._model, None)


class MemberAttempts(Attempts):
    """The attempts of all members at the problems of each step."""

    async def fitness(
        self, sampler: Engine, step: int, clock: Clock, record: Callable[[Episode], object]
    ) -> tuple[list[float], dict[str, Any]]:
        """The fitness of each member, and the metrics of the step, which is counted from 0.

        The sampler has an adapter for each. A problem at which an engine failed any member, or whose reward has a bug,
        counts for no member. UserError if more than half of them do. `record` is called with each episode.
        """
        plan, problems = self._plan, self._problems.batch()
        clock.lap("problems")

        def of_member(place: int, episode: Episode) -> Episode:
            number = place * plan.group + episode.sample
            name = episode_id(episode.problem, episode.organization, number)
            return replace(episode, id=name, sample=number)

        async def attempted(place: int) -> list[Episode]:
            luck = random.Random(f"{self._settings.seed}/{step}/luck {place // 2}").getrandbits(31)
            more = (self._models, self._crash, lambda episode: record(of_member(place, episode)))
            found = await roll_out(plan, problems, sampler.for_role(str(place)), luck, *more)
            return [of_member(place, episode) for episode in found]

        places = range(self._settings.population)
        attempts = chain(*await run_all(attempted, places))
        clock.lap("rollout")
        episodes = [episode.of_step(step + 1) for episode in whole_groups(list(attempts))]
        rewards = self._rewards(episodes)
        episodes = [episode for episode in episodes if episode.id in rewards]
        require_version(episodes, str(step), plan.trains)
        own = [(episode.sample // plan.group, rewards[episode.id]["reward"]) for episode in episodes]
        fitness = [fmean(reward for other, reward in own if other == place) for place in places]
        return fitness, {
            **self._settings.measure(episodes, rewards),
            "best_fitness": max(fitness),
            "fitness_deviation": pstdev(fitness),
            "broken_groups": len(problems) - len({episode.problem.id for episode in episodes}),
            "step_tokens": sum(map(sampled_tokens, episodes)),
        }


def evolve(
    population: Population, settings: EvolutionSettings, run: RunFolder, report: Callable[[dict[str, Any]], None]
) -> Path:
    """Train to the last step: see `run_steps`."""
    source = MemberAttempts(settings)

    async def step(progress: Progress) -> dict[str, Any]:
        clock, number = Clock(), progress.step
        try:
            fitness, metrics = await source.fitness(population.sampler, number, clock, progress.record)
        except Exception as error:
            raise Unmoved(error) from error
        clock.lap("reward")
        norm = population.move(str(number), fitness)
        await population.sync_sampler(str(number + 1))
        clock.lap("sync")
        return {"step": number + 1, **metrics, "gradient_norm": norm, "seconds": clock.seconds}

    return run_steps(population, source, settings, run, report, step)
