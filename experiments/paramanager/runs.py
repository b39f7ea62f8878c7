"""The trained runs that the tables compare, and the models that managers may ask."""

from __future__ import annotations

SEEN = {"pocket-mars": "arithmetic", "pocket": "countdown", "pocket-tools": "code review"}
"""The pool of the training: frozen models, and what the manager is told of them."""
MONO = {"pocket-tools": SEEN["pocket-tools"]}
"""One backbone: the only member that can do everything that a manager may ask for."""
UNSEEN = {"pocket-roles": "arithmetic", "pocket-async": "countdown", "pocket-tools-seed1": "code review"}
"""Models that no manager has met in training (table 3)."""
POOLS = {"seen": SEEN, "mono": MONO, "unseen": UNSEEN}
"""By name."""

TOOL_USER = "pocket-tools"
"""The only member that has learned to call tools."""
UNSEEN_TRAINED = "pocket-tools-seed1"
"""The only unseen model that does not ship: the lessons of `pocket-tools` with another seed."""

REHEARSED = "pocket-rehearsed"
"""Has rehearsed the form of a manager's work: the base that SFT starts from."""
COLLECTED = "pocket-trajectories"
"""Run folder of what that base did: the SFT data."""
SFT = "paramanager-sft"
"""Trained on those. It ships as `pocket-manager-sft`."""
START = "pocket-manager-sft"
"""What reinforcement learning starts from, and is compared with: the one that ships, whatever was trained since."""
PARAMANAGER = "paramanager-mini"
"""Both stages."""
SERIAL = f"{PARAMANAGER}-serial"
"""One call a round."""
MONO_TRAINED = f"{PARAMANAGER}-mono"
"""A pool of one."""
NO_DIVERSITY = f"{PARAMANAGER}-no-diversity"
"""Without the diversity reward."""
NO_SFT = f"{PARAMANAGER}-no-sft"
"""Reinforcement learning from a model that has never managed anybody."""
COSTS = {4: f"{PARAMANAGER}-cost-4", 8: PARAMANAGER, 12: f"{PARAMANAGER}-cost-12", 16: f"{PARAMANAGER}-cost-16"}
"""By cost target (table 6)."""

BASES = {SFT: REHEARSED}
"""Runs that start from another run."""
EPISODES = {SFT: COLLECTED}
"""Runs that learn from the trajectories of a run folder."""
TRAINED = (
    REHEARSED,
    SFT,
    UNSEEN_TRAINED,
    *dict.fromkeys((PARAMANAGER, SERIAL, MONO_TRAINED, NO_DIVERSITY, NO_SFT, *COSTS.values())),
)
"""What has to be trained, in an order in which each finds its base."""
