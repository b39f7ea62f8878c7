"""The trained runs that the tables compare."""

from __future__ import annotations

from experiments.shared.runs import SEED

BASE = "pocket-roles"
"""The shipped model that all runs start from. It has learned the form of the roles, but is not good at them yet."""
MARSRL = "marsrl-arithmetic-mini"
"""MarsRL with all roles and adaptive sampling."""
TASKS = {"arithmetic-mini": MARSRL, "countdown-mini-single": "marsrl-countdown-mini"}
"""Task → run. The first task is that of all tables except table 1."""
STRATEGIES = {"random": f"{MARSRL}-random", "balanced": f"{MARSRL}-balanced", "adaptive": MARSRL}
"""Sampling strategies: which outputs the next agent is trained on (section 3.4)."""
PARTS = {"marsrl-s": f"{MARSRL}-solver", "marsrl-vc": f"{MARSRL}-vc", "marsrl": MARSRL}
"""Sets of trained agents (section 4.3)."""
SOLVERS = (BASE, "pocket", "pocket-async", "pocket-sequential")
"""Shipped models as solvers for the trained verifier and corrector (section 4.4)."""

SEEDS = (1,)
"""Seeds of further trainings, beside the recipe's own. The strategies need them; other recipes use existing ones."""


def again(recipe: str) -> tuple[str, ...]:
    """Names of the further trainings of a recipe."""
    return tuple(f"{recipe}{SEED}{seed}" for seed in SEEDS)


RECIPES = tuple(dict.fromkeys((*TASKS.values(), *PARTS.values(), *STRATEGIES.values())))
"""All recipes to train."""
TRAINED = (*RECIPES, *(run for recipe in STRATEGIES.values() for run in again(recipe)))
"""All runs to train."""
