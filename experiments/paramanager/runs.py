"""The trained runs that the tables compare, and the pools of the managers."""

from __future__ import annotations

SEEN = {"pocket-mars": "arithmetic", "pocket": "countdown", "pocket-tools": "code review"}
"""The pool of the training: frozen model → description in the manager's prompt."""
MONO = {"pocket-tools": SEEN["pocket-tools"]}
"""A pool of one model, the only member that can do all kinds of sub-tasks."""
UNSEEN = {"pocket-roles": "arithmetic", "pocket-async": "countdown", "pocket-tools-seed1": "code review"}
"""A pool of models that were not used in training (table 3)."""
POOLS = {"seen": SEEN, "mono": MONO, "unseen": UNSEEN}
"""Pools by name."""

TOOL_USER = "pocket-tools"
"""The only member of the pools that has learned to call tools."""
UNSEEN_TRAINED = "pocket-tools-seed1"
"""The only unseen model that is not shipped: trained like `pocket-tools` with another seed."""

REHEARSED = "pocket-rehearsed"
"""The base of SFT, which has rehearsed the form of a manager's work."""
COLLECTED = "pocket-trajectories"
"""Run folder of that base's trajectories, the SFT data."""
SFT = "paramanager-sft"
"""The manager after SFT on these data. It ships as `pocket-manager-sft`."""
START = "pocket-manager-sft"
"""The shipped manager after SFT: base and baseline of reinforcement learning, even after a new SFT."""
PARAMANAGER = "paramanager-mini"
"""The manager after both stages."""
SERIAL = f"{PARAMANAGER}-serial"
"""The manager with one call per round."""
MONO_TRAINED = f"{PARAMANAGER}-mono"
"""The manager with a pool of one model."""
NO_DIVERSITY = f"{PARAMANAGER}-no-diversity"
"""The manager trained without the diversity reward."""
NO_SFT = f"{PARAMANAGER}-no-sft"
"""Reinforcement learning without SFT, from a model that has never been a manager."""
COSTS = {4: f"{PARAMANAGER}-cost-4", 8: PARAMANAGER, 12: f"{PARAMANAGER}-cost-12", 16: f"{PARAMANAGER}-cost-16"}
"""Runs by cost target (table 6)."""

BASES = {SFT: REHEARSED}
"""Runs that start from another run: run → base."""
EPISODES = {SFT: COLLECTED}
"""Runs that train on the trajectories of a run folder: run → run folder."""
TRAINED = (
    REHEARSED,
    SFT,
    UNSEEN_TRAINED,
    *dict.fromkeys((PARAMANAGER, SERIAL, MONO_TRAINED, NO_DIVERSITY, NO_SFT, *COSTS.values())),
)
"""All runs to train. A base comes before the runs that start from it."""
