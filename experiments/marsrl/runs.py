"""The trained runs that the tables compare."""

from __future__ import annotations

from experiments.shared.runs import SEED

BASE = "pocket-roles"
"""The shipped model that all of them start from: it has learned the roles, not yet to do them well."""
MARSRL = "marsrl-arithmetic-mini"
"""All roles, adaptive sampling."""
TASKS = {"arithmetic-mini": MARSRL, "countdown-mini-single": "marsrl-countdown-mini"}
"""What is trained on which task; the first is that of all tables but table 1."""
STRATEGIES = {"random": f"{MARSRL}-random", "balanced": f"{MARSRL}-balanced", "adaptive": MARSRL}
"""Which outputs the next agent is trained on (section 3.4)."""
PARTS = {"marsrl-s": f"{MARSRL}-solver", "marsrl-vc": f"{MARSRL}-vc", "marsrl": MARSRL}
"""Who is trained (section 4.3)."""
SOLVERS = (BASE, "pocket", "pocket-async", "pocket-sequential")
"""Shipped models that solve for the trained verifier and corrector (section 4.4)."""

SEEDS = (1,)
"""Of further trainings, beside the recipes' own; the strategies need them, the others have them where they exist."""


def again(recipe: str) -> tuple[str, ...]:
    """Names of a recipe's further trainings."""
    return tuple(f"{recipe}{SEED}{seed}" for seed in SEEDS)


RECIPES = tuple(dict.fromkeys((*TASKS.values(), *PARTS.values(), *STRATEGIES.values())))
"""What is trained, each at least once."""
TRAINED = (*RECIPES, *(run for recipe in STRATEGIES.values() for run in again(recipe)))
"""What has to be trained."""
