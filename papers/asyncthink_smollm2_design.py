"""The experiment on SmolLM2 as data: how much is computed, what is trained in which order, and what is compared."""

from __future__ import annotations

from dataclasses import dataclass

from papers.asyncthink_smollm2_claims import TEMPERATURES, UNTRAINED, VOTES, row_name

VARIANTS = "papers.asyncthink_variants"


@dataclass(frozen=True, slots=True)
class Size:
    """How much is computed."""

    task: str
    """Task of all trainings and evaluations."""
    tokens: int
    """Tokens of a segment."""
    cold_steps: int
    """Steps of the organizer's cold start; the thinker's goes on from it for a quarter of them."""
    traces: int
    """Traces of a cold start."""
    gate_steps: int
    steps: int
    permuted_steps: int
    problems: int
    """Problems of a step, eight attempts each. A thinker has more, so that it samples as many tokens."""
    rate: float
    """Learning rate of reinforcement learning."""
    held_out: int
    """Problems of an evaluation."""
    development: int = 100
    group: int = 8


SIZES = {
    "tiny": Size("countdown-all", 24, 2, 4, 2, 2, 2, 2, 1e-3, 4, 4, 2),
    "half": Size("countdown-all", 384, 480, 2_500, 20, 100, 40, 4, 5e-5, 400),
    "full": Size("countdown-all", 384, 480, 2_500, 20, 100, 40, 8, 1e-4, 400),
}


@dataclass(frozen=True, slots=True)
class Training:
    """A training of reinforcement learning, repeated with several seeds."""

    seeds: int
    settings: tuple[str, ...] = ()
    """What differs from `main`."""
    recipe: str = "asyncthink"
    start: str = "cold-start"
    """Adapter that it starts from."""


TRAININGS = {
    "main": Training(5),
    "sequential": Training(
        3,
        ("rollout.organization.organization=sequential", "reward.weight=0", "reward.format_error=0"),
        start="thinker",
    ),
    "no-eta": Training(3, ("reward.weight=0",)),
    "imitation": Training(3, recipe=f"{VARIANTS}:REJECTION_SAMPLING"),
    "barrier": Training(2, (f"rollout.organization.organization={VARIANTS}:Barrier",)),
    "permuted": Training(1, (f"credit.kind={VARIANTS}:Permuted", "credit.normalise=none")),
}
FIRST = 3
"""Trainings of `main` before all others, and those on which its variants are evaluated."""
ORDER = [
    *((name, seed) for name, one in TRAININGS.items() for seed in range(min(FIRST, one.seeds))),
    *((name, seed) for name, one in TRAININGS.items() for seed in range(FIRST, one.seeds)),
]
"""The order of the trainings: a first verdict needs `main` and `sequential`."""


@dataclass(frozen=True, slots=True)
class System:
    """A row of the table."""

    organization: str
    training: str
    """Name of a training, or adapter of a cold start."""
    budget: float = 1.0
    """Budget of an agent, or of a segment, in segments of the training."""
    settings: tuple[str, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(TRAININGS[self.training].seeds)) if self.training in TRAININGS else (UNTRAINED,)


SYSTEMS = {
    "before": System("asyncthink", "cold-start"),
    "main": System("asyncthink", "main"),
    "sequential": System("sequential", "sequential"),
    "sequential-x2": System("sequential", "sequential", 2),
    "sequential-x4": System("sequential", "sequential", 4),
    "thinker-before": System("sequential", "thinker"),
    "vote-2": System("majority-vote", "sequential", settings=("samples=2",)),
    "vote-4": System("majority-vote", "sequential", settings=("samples=4",)),
    "fan-out": System(f"{VARIANTS}:Constant", "main", settings=("workers=3",)),
    "never": System(f"{VARIANTS}:Constant", "main", settings=("workers=0",)),
    "main-x0.5": System("asyncthink", "main", 0.5),
    "main-x2": System("asyncthink", "main", 2),
    **{name: System("asyncthink", name) for name in ("no-eta", "imitation", "permuted")},
    "barrier": System(f"{VARIANTS}:Barrier", "barrier"),
}


def planned() -> dict[str, int]:
    """Row → number of its trainings. Votes need samples that differ, so they have no greedy row."""
    return {
        row_name(label, temperature): len(seeds(label))
        for temperature in TEMPERATURES
        for label in SYSTEMS
        if temperature or label not in VOTES
    }


def seeds(label: str) -> tuple[int, ...]:
    """Trainings on which a system is evaluated."""
    return SYSTEMS[label].seeds[: None if label == "main" else FIRST]
