"""The claims about MarsRL of experiments/CLAIMS.md, decided by the arenas of this folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import hypot

from experiments.shared.claims import (
    LETTER,
    UNKNOWN,
    VOID,
    Claim,
    Measured,
    Results,
    above_zero,
    against_reference,
    estimate,
    over_seeds,
    read_with,
    value,
)
from orgthink.arena.plans import UNCAPPED

FRESH_ROUNDS = ("fresh-2", "fresh-3", "fresh-corrector")
"""Systems with a fresh attempt in the corrector's place and two, three or four rounds."""
TASKS = {"sudoku": "", "sparse": ", ten empty", "repeated": ", repeated"}
"""Arena of the whole system → what its claims are marked with."""


def claims(arenas: Mapping[str, Results]) -> list[Claim]:
    """One claim for each number."""
    found: list[Claim] = []
    for name, where in TASKS.items():
        if name in arenas:
            system = _system(arenas[name], where)
            found += [*(read_with(VOID, system) if name == "sudoku" else system), _errors(arenas[name], where)]
    return [
        *found,
        *read_with(VOID, _stronger(arenas.get("trained-parts", {}))),
        *read_with(VOID, _lengths(arenas.get("trained-parts", {}))),
        *read_with(VOID, _orders(arenas.get("trained-parts", {}))),
        *(pipeline_claims(arenas["pipeline"]) if "pipeline" in arenas else ()),
        *(_once_more(arenas["sparse"], arenas["repeated"], arenas.get("repairs")) if "repeated" in arenas else ()),
        *(_paired(arenas["paired"], arenas.get("repairs-paired")) if "paired" in arenas else ()),
        *(_anew(arenas) if "anew" in arenas else ()),
    ]


def _system(results: Results, where: str = "") -> Iterator[Claim]:
    """M1 to M6 on one task."""
    if "vote" in {row["method"] for row in results["tables"][UNCAPPED.name]}:  # of a solver that is trained too
        yield _better(
            results, f"M1 (trained{where})", "vote", "it beats a vote of its solver at as many tokens or more"
        )
    yield _over_vote(results, where)
    yield Claim(
        f"M2{where}",
        "and a vote of eight, whose path is shorter: difference",
        against_reference(results, "wide-vote", "accuracy").negated,
        "upper end < 0",
        lambda _, __, high: high < 0,
        caveat="not at equal path",
    )
    yield _better(results, f"M3{where}", "lessons", "it beats as many updates on what teachers write")
    text = "its corrector beats a fresh attempt in its place (whole systems, not repairs: beside the claim)"
    yield replace(_better(results, f"M4{where}", "fresh-corrector", text), decides=False)
    yield _better(results, f"M5{where}", "shared", "a reward for each role beats a shared one")
    yield _halved(results, where)


def _over_vote(results: Results, where: str) -> Claim:
    """M1 where the solver is not trained."""
    text = "it beats a vote of the base's solver at as many tokens or more"
    return _better(results, f"M1 (base{where})", "vote-untrained", text)


def _halved(results: Results, where: str) -> Claim:
    """M6."""
    return Claim(
        f"M6{where}",
        "errors of the trained system ÷ errors of the base's system",
        error_ratio(results, "untrained"),
        "mean > 0.5 or upper end > 0.6",
        lambda mean, _, high: mean > 0.5 or high > 0.6,
    )


def _errors(results: Results, where: str) -> Claim:
    """The condition B4."""
    return Claim(
        f"B4{where}",
        "the task leaves errors to mend: share wrong of the base's solver alone",
        _wrong(value(results, "solver-untrained", "accuracy")),
        "mean < 0.15: the claims are void then, not lost",
        lambda mean, *_: mean < 0.15,
    )


def _stronger(parts: Results) -> Iterator[Claim]:
    """M7: what the trained verifier and corrector add to a stronger solver."""
    if parts:
        yield above_zero(
            "M7",
            "it improves a stronger solver: the system over it − that solver alone",
            estimate(parts["over_stronger"]),
        )


def _lengths(parts: Results) -> Iterator[Claim]:
    """M8: lengths of thoughts, as in figure 6."""
    for stream, changes in parts.get("lengths", {}).items():
        yield Claim(
            f"M8 ({stream})",
            f"outputs of {stream} change in length: last − first ten steps, tokens",
            over_seeds(changes),
            "the interval contains 0",
            lambda _, low, high: low <= 0 <= high,
        )


def _orders(parts: Results) -> Iterator[Claim]:
    """M10: adaptive sampling before balanced, balanced before random."""
    quality = {name: [seed["quality"] for seed in seeds] for name, seeds in parts.get("verifiers", {}).items()}
    for first, second in (("adaptive", "balanced"), ("balanced", "random")) if quality else ():
        ours, theirs = quality[f"verify-{first}"], quality[f"verify-{second}"]
        yield above_zero(
            f"M10 ({first})",
            f"{first} sampling makes better verifiers than {second}: recall · (1 − false alarms), difference",
            over_seeds([mine - other for mine, other in zip(ours, theirs, strict=True)]),
        )


def pipeline_claims(results: Results) -> Iterator[Claim]:
    """M9: what segments, POIS and masking each do to accuracy."""
    for what, without in (("segments", "unsegmented"), ("POIS", "sampler")):
        yield _harmless(what, against_reference(results, without, "accuracy").negated)
    yield _harmless("masking", against_reference(results, "masked", "accuracy"))


def _once_more(first: Results, second: Results, repairs: Results | None) -> Iterator[Claim]:
    """M4 by repairs, M5 over both samples of trainings, and M11: what came with the second sample."""
    yield _repaired("M4 (repairs)", repairs)
    yield above_zero(
        "M5 (six trainings)",
        "a reward for each role beats a shared one: mean of both differences",
        mean_of(*((against_reference(results, "shared", "accuracy").negated, 3) for results in (first, second))),
    )
    yield _verified("M11", repairs)


def _paired(results: Results, repairs: Results | None) -> Iterator[Claim]:
    """M3, M4, M5 and M11 by trainings that were evaluated before, at one temperature."""
    mark = "one temperature"
    yield _better(results, f"M3 ({mark})", "lessons", "it beats as many updates on what teachers write")
    yield _repaired(f"M4 (repairs, {mark})", repairs)
    yield from _at_equal_tokens(results)
    yield _better(results, f"M5 ({mark})", "shared", "a reward for each role beats a shared one")
    yield _verified(f"M11 ({mark})", repairs)


def _anew(arenas: Mapping[str, Results]) -> list[Claim]:
    """M1, M6 and M11 by trainings with lessons of their own, and M12, which came with them. What is compared with a
    vote decides where the vote takes no fewer tokens on average."""
    results, repairs, where = arenas["anew"], arenas.get("repairs-anew"), ", anew"
    one_solution = arenas.get("one-solution")
    errors = _errors(results, where)
    samples = ((arenas.get("sparse"), 3), (arenas.get("repeated"), 3), (results, 5))
    against_votes = (
        (UNKNOWN if sample is None else against_reference(sample, "vote-untrained", "accuracy").negated, trainings)
        for sample, trainings in samples
    )
    over_vote = "beats a vote of the base's solver at as many tokens or more"
    one = "it beats a vote on problems with one solution: difference (beside the claim)"
    fresh = f"its verifier beside fresh attempts {over_vote}: difference"
    eleven = above_zero("M1 (eleven trainings)", f"it {over_vote}: mean of three differences", mean_of(*against_votes))
    found = [
        replace(_over_vote(results, where), decides=_takes_as_many(results, "marsrl")),
        _better(results, "M1 (one attempt, anew)", "solver-untrained", "it beats one attempt of that solver"),
        replace(above_zero("M1 (one solution, anew)", one, _part(one_solution, "system")), decides=False),
        replace(eleven, decides=False),
        _halved(results, where),
        _verified("M11 (anew)", repairs),
        replace(above_zero("M12", fresh, _part(repairs, "vote")), decides=_takes_as_many(results, "fresh-corrector")),
    ]
    return [*(found if errors.row()["holds"] is not False else read_with(VOID, found)), errors]


def _takes_as_many(results: Results, method: str) -> bool:
    """Whether the vote takes as many tokens as a method, or more."""
    ours, vote = (value(results, name, "tokens").mean for name in (method, "vote-untrained"))
    return ours is not None and vote is not None and vote >= ours


def _part(measured: Results | None, name: str) -> Measured:
    return estimate(None if measured is None else measured.get(name))


def _at_equal_tokens(results: Results) -> Iterator[Claim]:
    """M4 by whole systems: fresh attempts in the most rounds that take no more tokens than the reference. Where all
    take more, the fewest stand beside the claim."""
    most = value(results, "marsrl", "tokens").mean
    taken = {name: tokens for name in FRESH_ROUNDS if (tokens := value(results, name, "tokens").mean) is not None}
    if most is None or not taken:
        return
    within = [name for name, tokens in taken.items() if tokens <= most]
    rival = max(within, key=taken.__getitem__) if within else min(taken, key=taken.__getitem__)
    beside = "" if within else f" (which takes {taken[rival] - most:.0f} more: beside the claim)"
    text = f"its corrector beats fresh attempts at no more tokens, {rival}{beside}"
    yield replace(_better(results, "M4 (equal tokens)", rival, text), decides=bool(within))


def _repaired(id_: str, repairs: Results | None) -> Claim:
    """M4 by what becomes of wrong solutions."""
    text = "of wrong solutions that the trained verifier rejects: fixed by its corrector − by a fresh attempt"
    difference = estimate(None if repairs is None else repairs["difference"])
    return above_zero(id_, text, difference, "not at equal tokens")


def _verified(id_: str, repairs: Results | None) -> Claim:
    """M11: by whom solutions are rejected."""
    text = "it is the trained verifier that helps: beside a fresh attempt, trained − the base's: difference"
    return above_zero(id_, text, estimate(None if repairs is None else repairs["verifier"]))


def mean_of(*parts: tuple[Measured, int]) -> Measured:
    """Mean of estimates that are independent given their base, each with the number of its trainings as its weight.

    Its half-width is the root of the sum of their squared weighted half-widths: too wide rather than too narrow where
    Student's quantile made these wide.
    """
    ends = [(one.mean, one.low, one.high, weight) for one, weight in parts]
    if any(None in each for each in ends):
        return UNKNOWN
    all_of = sum(weight for *_, weight in ends)
    mean = sum(each * weight for each, _, _, weight in ends) / all_of
    half = hypot(*((high - low) / 2 * weight for _, low, high, weight in ends)) / all_of
    return Measured(mean, mean - half, mean + half)


def _harmless(what: str, difference: Measured) -> Claim:
    return Claim(
        f"M9 ({what})",
        f"accuracy is no lower: with {what} − without",
        difference,
        "upper end < −0.02",
        lambda _, __, high: high < -0.02,
        caveat=LETTER,
    )


def error_ratio(results: Results, method: str) -> Measured:
    """Errors of the reference ÷ those of a method.

    The interval is that of the paired difference; the method's own errors count as known.
    """
    difference, right = against_reference(results, method, "accuracy"), value(results, method, "accuracy").mean
    if right is None or right >= 1 or difference.mean is None:
        return UNKNOWN
    return Measured(*(None if end is None else 1 + end / (1 - right) for end in _ends(difference)))


def _ends(measured: Measured) -> tuple[float | None, float | None, float | None]:
    return measured.mean, measured.low, measured.high


def _wrong(right: Measured) -> Measured:
    return Measured(*(None if end is None else 1 - end for end in (right.mean, right.high, right.low)))


def _better(results: Results, id_: str, method: str, text: str) -> Claim:
    """More often right than a method."""
    return above_zero(id_, f"{text}: difference", against_reference(results, method, "accuracy").negated)
