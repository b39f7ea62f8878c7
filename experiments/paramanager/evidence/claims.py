"""The claims about ParaManager of experiments/CLAIMS.md, decided by the arena of this folder."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.shared.claims import Claim, Results, against_reference, best, value

ALONE = {"member": "the best member", "vote": "a vote", "tools": "the base alone with the same tools"}
"""Baselines of P4, each at its best settings."""


def claims(arenas: Mapping[str, Results]) -> list[Claim]:
    """One claim for each number."""
    pool = arenas["pool"]
    rival = best(pool, "baseline")
    return [
        Claim(
            "P1",
            "supervised fine-tuning leaves room: share right",
            value(pool, "sft", "accuracy"),
            "mean < 0.65 or mean > 0.85: P2 is void then, not lost",
            lambda mean, *_: not 0.65 <= mean <= 0.85,
        ),
        _better(pool, "P2", "sft", "reinforcement learning adds to fine-tuning", least=0.05),
        _better(pool, "P2 (T = 1)", "sft-sampled", "the same where the fine-tuned one samples at T = 1", least=0.05),
        _better(pool, "P3", rival, f"it beats the best of the others, which is {rival}", least=0.05),
        *(_better(pool, f"P4 ({name})", name, f"it beats {what}") for name, what in ALONE.items()),
        Claim(
            "P5",
            "parallel calls pay: seconds of the serial form ÷ its seconds",
            against_reference(pool, "serial", "seconds_ratio"),
            "mean < 1.25 or lower end ≤ 1.10",
            lambda mean, low, _: mean < 1.25 or low <= 1.10,
        ),
    ]


def _better(pool: Results, id_: str, method: str, text: str, least: float = 0.0) -> Claim:
    """More often right than a method, by a number of points at least."""
    return Claim(
        id_,
        f"{text}: difference",
        against_reference(pool, method, "accuracy").negated,
        f"lower end ≤ 0 or mean < {least}" if least else "lower end ≤ 0",
        lambda mean, low, _: low <= 0 or mean < least,
    )
