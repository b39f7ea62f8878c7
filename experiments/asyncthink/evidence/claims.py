"""The claims about AsyncThink of experiments/CLAIMS.md, decided by the arenas of this folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from experiments.asyncthink.evidence.linked_claims import linked_claims
from experiments.shared.claims import (
    AMENDED,
    LETTER,
    VOID,
    ByMeans,
    Claim,
    Measured,
    Results,
    above_zero,
    against_reference,
    best,
    best_held_out,
    estimate,
    means,
    read_with,
    value,
)

FAMILIES = {"sudoku": "sudoku", "sums": "long sums", "parts": "independent values", "several": "several countdowns"}
"""Arena → the problems of another family on which the policy is tried."""
SELDOM_WRONG = ("sudoku", "sums")
"""Families in which the base alone errs in fewer than 15 % of the development problems."""
ONCE_MORE = {
    "six": "six",
    "whole": "six again",
    "varied": "six a third time",
    "averaged": "six a fourth time",
    "paid": "six a fifth time",
    "longer": "six a sixth time",
    "drilled": "six a seventh time",
    "thrice": "six an eighth time",
    "soup": "six a ninth time",
}
"""Arena → the task on which A1 to A4 are decided once more."""
STRICT = {"averaged", "paid", "longer", "drilled", "thrice", "soup"}
"""Arenas whose best baseline is the one that is best on the held-out problems themselves."""
PATH, SECONDS = "critical_path_ratio", "seconds_ratio"


def claims(arenas: Mapping[str, Results]) -> list[Claim]:
    """One claim for each number. `countdown` is the arena of the trainings' own task, the others are those of
    `FAMILIES` and of chains.
    """
    countdown = arenas["countdown"]
    found = read_with(VOID, [*_at_its_best(countdown), *_concurrency_reward(countdown), *_places(countdown)])
    for family, title in FAMILIES.items():
        if family in arenas:
            changes = _transfer(arenas[family], family, title)
            found += read_with(VOID, changes) if family in SELDOM_WRONG else changes
    if "chains" in arenas:
        found.append(_chains(arenas["chains"]))
    if "trees" in arenas:
        found += read_with(VOID, _trees(arenas["trees"]))
    for name, title in ONCE_MORE.items():
        if name in arenas:
            decisions = [
                *_at_its_best(arenas[name], f", {title}", "c = 8", strict=name in STRICT),
                *_memory_bound(arenas[name], arenas.get(f"memory-bound-{name}", {}), title, strict=name in STRICT),
                *_on_gpu(arenas.get(f"on-gpu-{name}", {}), title),
                *_over_targets(arenas[name], arenas.get(f"targets-{name}", {}), title, strict=name in STRICT),
            ]
            found += read_with(VOID, decisions)
    if "mixed" in arenas and "dependent" in arenas:
        found += _where_they_pay(arenas["mixed"], arenas["dependent"])
    if "drilled" in arenas:
        found += read_with(VOID, _paid(arenas["drilled"]))
    if "linked" in arenas:
        found += read_with(AMENDED, linked_claims(arenas["linked"], arenas.get("kinds-linked", {})))
    if "stages" in arenas:
        found += read_with(VOID, _stages(arenas["stages"], arenas.get("efficiency", {})))
    return found


def _rival(arena: Results, *, strict: bool) -> str:
    """The best baseline: on development problems, or if `strict` on the held-out ones."""
    return best_held_out(arena, "baseline") if strict else best(arena, "baseline")


def _at_its_best(arena: Results, where: str = "", places: str = "c = 4", *, strict: bool = False) -> Iterator[Claim]:
    """A1 to A4 on one task: as right as the best baseline, on a shorter path, in less time, by choice."""
    rival = _rival(arena, strict=strict)
    yield _as_right(f"A1{where}", rival, against_reference(arena, rival, "accuracy").negated)
    path = against_reference(arena, rival, PATH).inverse
    yield Claim(
        f"A2{where}",
        f"on a shorter critical path than {rival}: ratio",
        path,
        "mean > 0.55 or upper end > 0.60",
        lambda mean, _, high: mean > 0.55 or high > 0.60,
    )
    if any(row["method"] == "asyncthink-sampled" for row in arena["tables"]["uncapped"]):
        steps = [value(arena, method, "critical_path_steps").mean for method in ("asyncthink-sampled", rival)]
        yield ByMeans(
            f"A2 (T = 1){where}",
            f"on a shorter critical path at T = 1 than {rival}: ratio of means",
            means(*steps, lambda a, b: a / b),
            "mean > 0.55",
            lambda mean, *_: mean > 0.55,
        )
    cpu = f"than {rival}, beside other work on a CPU, whose steps are not bound by memory"
    yield replace(
        _in_less_time(f"this CPU{where}", cpu, against_reference(arena, rival, SECONDS).inverse), decides=False
    )
    yield Claim(
        f"A4{where}",
        f"forks are chosen: share of episodes with a Fork at {places}",
        value(arena, "asyncthink", "forked"),
        "mean < 0.80",
        lambda mean, *_: mean < 0.80,
    )


def _in_less_time(where: str, text: str, ratio: Measured) -> Claim:
    """A3, measured somewhere."""
    return Claim(
        f"A3 ({where})",
        f"in less time {text}: ratio",
        ratio,
        "mean > 0.67 or upper end > 0.75",
        lambda mean, _, high: mean > 0.67 or high > 0.75,
    )


def _memory_bound(arena: Results, replays: Results, title: str, *, strict: bool) -> Iterator[Claim]:
    """A3 where steps are bound by memory."""
    rival = _rival(arena, strict=strict)
    if replays:
        text = f"than {rival}, where steps are bound by memory"
        yield _in_less_time(f"bound by memory, {title}", text, estimate(replays["ratios"].get(rival)))


def _on_gpu(replays: Results, title: str) -> Iterator[Claim]:
    """A3 by schedules that a GPU executed, beside the best baseline on the held-out problems."""
    for rival, ratio in replays.get("ratios", {}).items():
        text = f"than {rival}, by {replays['model']}'s shape on {replays['device']}"
        yield _in_less_time(f"on a GPU, {title}", text, estimate(ratio))


def _over_targets(arena: Results, differences: Results, title: str, *, strict: bool) -> Iterator[Claim]:
    """A1 with an interval over the held-out targets instead of their problems."""
    rival = _rival(arena, strict=strict)
    if differences:
        yield _as_right(f"A1 (over targets), {title}", rival, estimate(differences.get(rival)))


def _as_right(id_: str, rival: str, difference: Measured) -> Claim:
    """A1, with an interval over something."""
    return Claim(
        id_,
        f"as right as the best baseline, which is {rival}: difference",
        difference,
        "upper end < 0 or mean < −0.02",
        lambda mean, _, high: high < 0 or mean < -0.02,
    )


def _concurrency_reward(countdown: Results) -> Iterator[Claim]:
    """A5 and A6: what R_η is worth."""
    yield above_zero(
        "A5",
        "the concurrency reward shortens the path: steps without − with it",
        against_reference(countdown, "no-concurrency-reward", "critical_path_steps"),
    )
    yield Claim(
        "A6",
        "it costs no accuracy: all correct with − without it",
        against_reference(countdown, "no-concurrency-reward", "accuracy").negated,
        "upper end < 0",
        lambda _, __, high: high < 0,
        caveat=LETTER,
    )


def _places(countdown: Results) -> Iterator[Claim]:
    """A13: the mean critical path at c = 1, where a thinker is alone, 2, 4 and 8 falls, at c = 4 to 0.75 of c = 2."""
    steps = {
        places: value(countdown, method, "critical_path_steps").mean
        for places, method in ((1, "alone"), (2, "two-places"), (4, "asyncthink"), (8, "eight-places"))
    }
    for few, more in pairwise(steps):
        yield ByMeans(
            f"A13 (c = {few}, {more})",
            f"more workers, shorter path: mean path at c = {more} − mean path at c = {few}, steps",
            means(steps[more], steps[few], lambda a, b: a - b),
            "mean > 0",
            lambda mean, *_: mean > 0,
        )
    yield ByMeans(
        "A13 (ratio)",
        "more workers, shorter path: mean path at c = 4 ÷ mean path at c = 2",
        means(steps[4], steps[2], lambda a, b: a / b),
        "mean > 0.75",
        lambda mean, *_: mean > 0.75,
    )


def _transfer(arena: Results, family: str, title: str) -> Iterator[Claim]:
    """A9 and A10: what reinforcement learning on countdown changes on another family, by itself and with shuffled
    rewards.
    """
    for id_, method, what in (("A9", "after", ""), ("A10", "after-shuffled", ", shuffled rewards")):
        for name, quantity in (("η", "concurrency"), ("path", "critical_path_steps"), ("accuracy", "accuracy")):
            change = against_reference(arena, method, quantity)
            if id_ == "A9":
                seldom = LETTER if (family, name) == ("parts", "accuracy") else ""  # 3 % right cannot fall by 3 points
                change_of = _expected(f"A9 ({family}, {name})", f"{title}, {name}: after − before", change, name)
                yield replace(change_of, caveat=seldom)
            elif name != "accuracy":
                yield _flat(f"A10 ({family}, {name})", f"{title}, {name}{what}: after − before", change, name)


def _expected(id_: str, text: str, change: Any, name: str) -> Claim:
    if name == "η":
        return above_zero(id_, text, change)
    if name == "path":
        return Claim(id_, text, change, "upper end ≥ 0", lambda _, __, high: high >= 0)
    return Claim(id_, text, change, "mean < −0.03", lambda mean, *_: mean < -0.03)


def _flat(id_: str, text: str, change: Any, name: str) -> Claim:
    if name == "η":
        return Claim(id_, text, change, "lower end > 0", lambda _, low, __: low > 0, caveat=LETTER)
    return Claim(id_, text, change, "upper end < 0", lambda _, __, high: high < 0, caveat=LETTER)


def _stages(arena: Results, efficiency: Results) -> Iterator[Claim]:
    """A7 and A8: what each stage of the training is worth."""
    for method, what in (("no-lessons", "without lessons"), ("no-reinforcement", "without reinforcement learning")):
        yield above_zero(
            f"A7 ({method})",
            f"both stages are needed: right answers in 100 steps of critical path, with both - {what}",
            estimate(efficiency.get(method)),
        )
    yield above_zero(
        "A8",
        "random structures beat the two topologies: critical path after reinforcement learning, fixed - random",
        against_reference(arena, "fixed", "critical_path_steps"),
    )
    yield Claim(
        "A8 (accuracy)",
        "at an accuracy within 2 points: fixed - random",
        against_reference(arena, "fixed", "accuracy"),
        "mean > 0.02",
        lambda mean, *_: mean > 0.02,
    )


def _trees(arena: Results) -> Iterator[Claim]:
    """A12: sums as trees, in segments of 64 tokens, against one thinker with 128 or 256 and votes."""
    rival = best(arena, "baseline")
    yield Claim(
        "A12 (accuracy)",
        f"sums as trees, 64 tokens a segment, are as right as the best baseline, which is {rival}: difference",
        against_reference(arena, rival, "accuracy").negated,
        "lower end < 0",
        lambda _, low, __: low < 0,
    )
    yield Claim(
        "A12 (path)",
        f"sums as trees, on a shorter critical path than {rival}: ratio",
        against_reference(arena, rival, PATH).inverse,
        "mean > 0.67",
        lambda mean, *_: mean > 0.67,
    )


def _where_they_pay(mixed: Results, dependent: Results) -> Iterator[Claim]:
    """A14 to A17: forks of a policy that is paid for a short path, beside one that is paid for concurrency."""
    yield Claim(
        "A14",
        "paid for a short path, no forks where parts depend on each other: share of episodes with a Fork",
        value(dependent, "paid-for-path", "forked"),
        "mean > 0.05",
        lambda mean, *_: mean > 0.05,
    )
    yield Claim(
        "A15 (forks)",
        "the same policy forks six countdowns: share of episodes with a Fork",
        value(mixed, "paid-for-path", "forked"),
        "mean < 0.95",
        lambda mean, *_: mean < 0.95,
        caveat=VOID,
    )
    yield Claim(
        "A15 (path)",
        "on a shorter critical path than one thinker: ratio",
        against_reference(mixed, "alone", PATH).inverse,
        "mean > 0.60",
        lambda mean, *_: mean > 0.60,
        caveat=VOID,
    )
    yield above_zero(
        "A16",
        "paid for concurrency, it forks where parts depend: critical path on chains, λ − μ",
        against_reference(dependent, "paid-for-concurrency", "critical_path_steps"),
    )
    for arena, what in ((mixed, "six countdowns"), (dependent, "chains")):
        yield Claim(
            f"A17 ({what})",
            f"the short path costs no accuracy, {what}: all correct, μ − λ",
            against_reference(arena, "paid-for-concurrency", "accuracy").negated,
            "upper end < 0",
            lambda _, __, high: high < 0,
            caveat=f"{LETTER}, {VOID}" if arena is mixed else "",
        )


def _paid(arena: Results) -> Iterator[Claim]:
    """A18 and A19: a reward for the path against one for concurrency, from one base."""
    yield above_zero(
        "A18",
        "paid for the path it ends on a shorter one than paid for concurrency: steps, λ − μ",
        against_reference(arena, "paid-for-concurrency", "critical_path_steps"),
    )
    yield Claim(
        "A19",
        "at no loss: all correct, μ − λ",
        against_reference(arena, "paid-for-concurrency", "accuracy").negated,
        "upper end < 0",
        lambda _, __, high: high < 0,
        caveat=LETTER,
    )


def _chains(arena: Results) -> Claim:
    return Claim(
        "A11",
        "no forks where parts depend on each other: share of episodes with a Fork after reinforcement learning",
        value(arena, "after", "forked"),
        "mean > 0.05",
        lambda mean, *_: mean > 0.05,
    )
