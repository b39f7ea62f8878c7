"""The claims about ParaManager of experiments/CLAIMS.md, decided by the arena of this folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev

from experiments.paramanager.evidence.routing import SAMPLED
from experiments.shared.claims import UNKNOWN, Claim, Measured, Results, against_reference, best, value
from orgthink.measure.estimate import student

ALONE = {"member": "the best member", "vote": "a vote", "tools": "the base alone with the same tools"}
"""Baselines of P4, each at its best settings."""


def claims(arenas: Mapping[str, Results]) -> list[Claim]:
    """One claim for each number."""
    pool = arenas["pool"]
    rival = best(pool, "baseline")
    return [
        *_routes(arenas.get("routing")),
        Claim(
            "P1",
            "supervised fine-tuning leaves room: share right",
            value(pool, "sft", "accuracy"),
            "mean < 0.65 or mean > 0.85: P2 is void then, not lost",
            lambda mean, *_: not 0.65 <= mean <= 0.85,
        ),
        _better(pool, "P2", "sft", "reinforcement learning adds to fine-tuning", least=0.05),
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


def _routes(routing: Results | None) -> Iterator[Claim]:
    """P7 and P11, from the calls at T = 1."""
    before, after = ([] if routing is None else routing["shares"][name] for name in SAMPLED)
    yield Claim(
        "P7",
        "reinforcement learning finds out whom to ask: share of calls to the member that is best for the part, "
        "after − before",
        over_seeds([second["best"] - first["best"] for first, second in zip(before, after, strict=True)]),
        "lower end ≤ 0.10",
        lambda _, low, __: low <= 0.10,
    )
    farthest = [max(abs(share - 1 / len(one["members"])) for share in one["members"].values()) for one in before]
    yield Claim(
        "P11",
        "no route was taught: the member that is farthest from an equal share of the calls after fine-tuning",
        over_seeds(farthest),
        "mean > 0.05",
        lambda mean, *_: mean > 0.05,
    )


def over_seeds(values: Sequence[float]) -> Measured:
    """Mean over trainings or seeds with Student's interval."""
    if len(values) < 2:
        return UNKNOWN
    mean, half = fmean(values), student(len(values) - 1) * stdev(values) / sqrt(len(values))
    return Measured(mean, mean - half, mean + half)


def _better(pool: Results, id_: str, method: str, text: str, least: float = 0.0) -> Claim:
    """More often right than a method, by a number of points at least."""
    return Claim(
        id_,
        f"{text}: difference",
        against_reference(pool, method, "accuracy").negated,
        f"lower end ≤ 0 or mean < {least}" if least else "lower end ≤ 0",
        lambda mean, low, _: low <= 0 or mean < least,
    )
