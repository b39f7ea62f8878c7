"""The claims about ParaManager of experiments/CLAIMS.md, decided by the arenas of this folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from experiments.paramanager.evidence.routing import SAMPLED
from experiments.paramanager.evidence.starts import STARTS
from experiments.shared.claims import (
    LETTER,
    UNKNOWN,
    Claim,
    Measured,
    Results,
    above_zero,
    against_reference,
    best_held_out,
    estimate,
    over_seeds,
    value,
)

ALONE = {"member": "the best member", "vote": "a vote", "tools": "the base alone with the same tools"}
"""Baselines of P4, each at its best settings."""
CONTROLS = {"accepted": "rejection sampling with as many rollouts", "shuffled": "shuffled rewards"}
"""Trainings of P8."""
TARGETS = ("cost-2", "paramanager", "cost-4", "cost-8")
"""Trainings of P6: cost targets of 2, 3, 4 and 8."""


def claims(arenas: Mapping[str, Results]) -> list[Claim]:
    """One claim for each number. `reordered` decides beside `pool`, and `unseen` about its manager."""
    pool, reordered, unseen = (arenas.get(name) for name in ("pool", "reordered", "unseen"))
    found: list[Claim] = []
    if pool is not None:
        found += [
            *_routes(arenas.get("routing")),
            *_at_its_best(pool),
            _faster(pool, "of the first training of each", caveat=LETTER),
        ]
    if reordered is not None:
        mark = " (reordered)"
        found += [*_routes(arenas.get("reordered-routing"), mark), *_at_its_best(reordered, mark), _cost(reordered)]
        found += [_better(reordered, f"P8 ({name})", name, f"it beats {what}") for name, what in CONTROLS.items()]
        found.append(_start(arenas.get("starts")))
        if unseen is not None:
            ratio = _ratio(value(unseen, "paramanager", "accuracy"), value(reordered, "paramanager", "accuracy"))
            found.append(_unseen(ratio, "members in another order"))
    if "searched" in arenas:
        searched = arenas["searched"]
        found += [
            _better(searched, "P2 (searched)", "sft", "reinforcement learning adds to fine-tuning", least=0.05),
            _better(searched, "P3 (searched)", "workflow", "it beats a searched workflow", least=0.05),
        ]
    if "shuffled" in arenas:
        found += _unknown(arenas["shuffled"], arenas.get("strangers"), arenas.get("beside-strangers"))
    if "parallel" in arenas:
        found.append(_faster(arenas["parallel"], "of three trainings of each", " (parallel)"))
    return found


def _at_its_best(pool: Results, mark: str = "") -> Iterator[Claim]:
    """P1 to P4: fine-tuning, reinforcement learning and the baselines, each at its best settings."""
    rival = best_held_out(pool, "baseline")  # a router has no development problems: a choice in favour of the rivals
    yield Claim(
        f"P1{mark}",
        "supervised fine-tuning leaves room: share right",
        value(pool, "sft", "accuracy"),
        "mean < 0.65 or mean > 0.85: P2 is void then, not lost",
        lambda mean, *_: not 0.65 <= mean <= 0.85,
    )
    yield _better(pool, f"P2{mark}", "sft", "reinforcement learning adds to fine-tuning", least=0.05)
    text = f"it beats the best of four other baselines, which is {rival}"
    yield replace(
        _better(pool, f"P3{mark}", rival, f"{text} (no workflow was searched: beside the claim)", least=0.05),
        decides=False,
    )
    for name, what in ALONE.items():
        yield _better(pool, f"P4 ({name}){mark}", name, f"it beats {what}")


def _faster(pool: Results, trainings: str, mark: str = "", caveat: str = "") -> Claim:
    return Claim(
        f"P5{mark}",
        f"parallel calls pay: seconds of the serial form ÷ its seconds, {trainings}",
        against_reference(pool, "serial", "seconds_ratio"),
        "mean < 1.25 or lower end ≤ 1.10",
        lambda mean, low, _: mean < 1.25 or low <= 1.10,
        caveat=caveat,
    )


def _routes(routing: Results | None, mark: str = "") -> Iterator[Claim]:
    """P7 and P11, from the calls at T = 1: beside the claims, which are about each kind and size of problem."""
    before, after = ([] if routing is None else routing["shares"][name] for name in SAMPLED)
    yield Claim(
        f"P7{mark}",
        "reinforcement learning finds out whom to ask: share of calls to the member that is best for the part, "
        "after − before, all kinds of problems together",
        over_seeds([second["best"] - first["best"] for first, second in zip(before, after, strict=True)]),
        "lower end ≤ 0.10",
        lambda _, low, __: low <= 0.10,
        decides=False,
    )
    farthest = [max(abs(share - 1 / len(one["members"])) for share in one["members"].values()) for one in before]
    yield Claim(
        f"P11{mark}",
        "no route was taught: the member that is farthest from an equal share of the calls after fine-tuning, "
        "all kinds of problems together",
        over_seeds(farthest),
        "mean > 0.05",
        lambda mean, *_: mean > 0.05,
        decides=False,
    )


def _cost(pool: Results) -> Claim:
    """P6. The ends of the interval divide those of the two costs, of one training each: it covers problems alone."""
    costs = [value(pool, name, "cost_units") for name in TARGETS]
    means = [cost.mean for cost in costs if cost.mean is not None]
    rises = all(first <= second for first, second in pairwise(means))
    return Claim(
        "P6",
        "cost follows the target: cost at a target of 2 ÷ cost at 8",
        _ratio(costs[0], costs[-1]),
        "mean > 0.70, or the mean costs at 2, 3, 4 and 8 do not rise",
        lambda mean, *_: mean > 0.70 or not rises,
    )


def _start(starts: Results | None) -> Claim:
    """P10. The interval is over the last steps of one training each, in pairs: at a step both see the same problems."""
    first, second = ([], []) if starts is None else (starts[name] for name in STARTS)
    return above_zero(
        "P10",
        "rewards for format and diversity start a base without fine-tuning: reward of the task in the last ten steps, "
        "with − without them",
        over_seeds([one - other for one, other in zip(first, second, strict=True)]),
    )


def _unknown(shuffled: Results, strangers: Results | None, beside: Results | None) -> Iterator[Claim]:
    """P2, P9, P12 and P13 of a manager that cannot know its members."""
    text = "reinforcement learning adds to fine-tuning where ids mean nothing"
    yield _better(shuffled, "P2 (shuffled)", "sft", text, least=0.05)
    every = _better(shuffled, "P12", "everybody", "it beats a vote of all members, where nobody knows them")
    yield replace(every, caveat="by ledgers alone, and not by reinforcement learning")
    if strangers is not None:
        ratio = UNKNOWN if beside is None else estimate(beside["ratio"]["paramanager"])
        yield replace(_unseen(ratio, "other members", " (shuffled)"), caveat=LETTER)
        yield _better(strangers, "P13", "sft", "what it learned serves it beside other members: after − before")


def _unseen(ratio: Measured, beside: str, mark: str = "") -> Claim:
    """P9. Of `unseen`, whose episodes are gone, the ends of the interval divide those of the two shares: too wide."""
    return Claim(
        f"P9{mark}",
        f"a pool that it never saw works: share right beside {beside} ÷ share right beside its own",
        ratio,
        "lower end < 0.90",
        lambda _, low, __: low < 0.90,
    )


def _ratio(above: Measured, below: Measured) -> Measured:
    """The quotient of two numbers above zero, and those of the ends that make it smallest and largest."""
    pairs = ((above.mean, below.mean), (above.low, below.high), (above.high, below.low))
    return Measured(*(None if first is None or not second else first / second for first, second in pairs))


def _better(pool: Results, id_: str, method: str, text: str, least: float = 0.0) -> Claim:
    """More often right than a method, by a number of points at least."""
    return Claim(
        id_,
        f"{text}: difference",
        against_reference(pool, method, "accuracy").negated,
        f"lower end ≤ 0 or mean < {least}" if least else "lower end ≤ 0",
        lambda mean, low, _: low <= 0 or mean < least,
    )
