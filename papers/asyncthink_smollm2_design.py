"""AsyncThink on SmolLM2 as data: how much is computed, what is trained in which order, and what is compared."""

from __future__ import annotations

from papers.experiment import Size, System, Training

VARIANTS = "papers.asyncthink_variants"

SIZES = {
    "tiny": Size("countdown-all", 24, 2, 4, 2, 2, 2, 2, 1e-3, 4, 4, 2),
    "half": Size("countdown-all", 384, 480, 2_500, 10, 30, 30, 8, 1e-4, 200),
    "full": Size("countdown-all", 384, 480, 2_500, 20, 100, 40, 8, 1e-4, 400),
}
"""Eight attempts at each problem of a step. A thinker has more problems, so that it samples as many tokens."""

OUTCOME = ("reward.weight=0", "reward.path_weight=0")
"""Rewards answers only, with neither R_η nor the path."""

TRAININGS = {
    "main": Training(5),
    "sequential": Training(
        3,
        ("rollout.organization.organization=sequential", *OUTCOME, "reward.format_error=0"),
        start="thinker",
    ),
    "outcome": Training(3, OUTCOME),
    "imitation": Training(3, OUTCOME, recipe=f"{VARIANTS}:REJECTION_SAMPLING", replays="main"),
    "barrier": Training(2, (f"rollout.organization.organization={VARIANTS}:Barrier",)),
    "permuted": Training(1, ("credit.kind=papers.variants:Permuted", "credit.normalise=none"), control=True),
}
"""In the order of their priority: a first verdict needs `main` and `sequential`."""

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
    **{name: System("asyncthink", name) for name in ("outcome", "imitation", "permuted")},
    "barrier": System(f"{VARIANTS}:Barrier", "barrier"),
}
