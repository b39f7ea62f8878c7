"""The trained runs that the tables compare."""

from __future__ import annotations

ASYNCTHINK = "asyncthink-countdown-mini"
"""Both stages of AsyncThink: the shipped base has learned the format, reinforcement learning the organization."""
SEQUENTIAL = {f"{ASYNCTHINK}-sequential": 192, f"{ASYNCTHINK}-sequential-long": 480}
"""The baselines by the same reinforcement learning, without forks, and the budget each was trained at, in tokens."""
ABLATIONS = {
    "-concurrency reward": f"{ASYNCTHINK}-no-concurrency",
    "-format SFT": f"{ASYNCTHINK}-no-sft",
    "-RL": "pocket",
}
"""What is taken away, and the run that shows it; `pocket` is the shipped base."""
PLAIN = "pocket-plain"
"""The base that never saw a Fork."""
BASES = {ABLATIONS["-format SFT"]: PLAIN}
"""Runs that start from another trained run, not from the shipped base."""

TRAINED = (PLAIN, ASYNCTHINK, *SEQUENTIAL, *(run for run in ABLATIONS.values() if run != "pocket"))
"""What has to be trained, in an order in which each finds its base."""
