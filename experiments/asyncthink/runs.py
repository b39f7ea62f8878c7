"""The trained runs that the tables compare."""

from __future__ import annotations

ASYNCTHINK = "asyncthink-countdown-mini"
"""AsyncThink after both stages: the shipped base has learned the format, and this run adds reinforcement learning."""
SEQUENTIAL = {f"{ASYNCTHINK}-sequential": 192, f"{ASYNCTHINK}-sequential-long": 480}
"""Baselines with the same reinforcement learning but without forks: run → token budget of its training."""
ABLATIONS = {
    "-concurrency reward": f"{ASYNCTHINK}-no-concurrency",
    "-format SFT": f"{ASYNCTHINK}-no-sft",
    "-RL": "pocket",
}
"""Ablations: what is left out → run. `pocket` is the shipped base."""
PLAIN = "pocket-plain"
"""The base model without any Fork in its training data."""
BASES = {ABLATIONS["-format SFT"]: PLAIN}
"""Runs that start from another trained run instead of the shipped base: run → base."""

TRAINED = (PLAIN, ASYNCTHINK, *SEQUENTIAL, *(run for run in ABLATIONS.values() if run != "pocket"))
"""All runs to train. A base comes before the runs that start from it."""
