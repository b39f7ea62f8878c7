"""Two organizations on the problems that both attempted (as in Table 8 of ParaManager): differences and flips."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orgthink.measure.accuracy import all_correct
from orgthink.measure.estimate import Estimate, average
from orgthink.measure.latency import critical_path
from orgthink.measure.summary import Measure, compare, grouped
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Episode
from orgthink.util.errors import UserError

COMPARED: Mapping[str, Measure] = {
    "all_correct": all_correct,
    "critical_path_steps": critical_path,
    "sampled_tokens": sampled_tokens,
    "seconds": lambda episode: episode.seconds,
}
"""Measures that are compared."""


def by_organization(episodes: Iterable[Episode]) -> dict[str, list[Episode]]:
    """The episodes of each organization, in the order of their first ones."""
    return grouped(episodes, lambda episode: episode.organization)


def paired(before: Sequence[Episode], after: Sequence[Episode]) -> dict[str, dict[str, Any]]:
    """Measure → `baseline` and `mean`, their paired `difference` with a 95 % interval, and `change`.

    All are over the problems of which both have a value: an ungraded problem is left out of both accuracies.
    `change` is the difference as a share of the baseline: −0.31 is a decrease of 31 %; `None` if the baseline is 0 or
    unknown. UserError if a problem of the same id reads otherwise: then they are no pairs.
    """
    texts = {episode.problem.id: episode.problem.text for episode in before}
    for problem in (episode.problem for episode in after):
        if texts.get(problem.id, problem.text) != problem.text:
            raise UserError(f"problem {problem.id} has two texts, so the attempts at it cannot be compared")
    return {measure: _compared(after, before, function) for measure, function in COMPARED.items()}


@dataclass(frozen=True, slots=True)
class Flip:
    """A problem that most attempts of one side answer correctly, and most of the other do not."""

    problem: str
    """Its id."""
    text: str
    """The question."""
    before: float
    """Share of correct attempts of the first side."""
    after: float
    """The same of the second side."""

    @property
    def gained(self) -> bool:
        return self.after > self.before


def flips(before: Sequence[Episode], after: Sequence[Episode]) -> list[Flip]:
    """The flips in order of the problems' ids. Ungraded attempts do not count, and neither does a tie of one side."""
    texts = {episode.problem.id: episode.problem.text for episode in before}
    ours, theirs = _shares(before), _shares(after)
    pairs = ((problem, ours[problem], theirs[problem]) for problem in sorted(ours.keys() & theirs.keys()))
    return [Flip(problem, texts[problem], old, new) for problem, old, new in pairs if (old - 0.5) * (new - 0.5) < 0]


def _shares(episodes: Iterable[Episode]) -> dict[str, float]:
    """Share of correct attempts at each problem that has a graded one."""
    outcomes: defaultdict[str, list[bool]] = defaultdict(list)
    for episode in episodes:
        if (outcome := all_correct(episode)) is not None:
            outcomes[episode.problem.id].append(outcome)
    return {problem: sum(found) / len(found) for problem, found in outcomes.items()}


def _compared(attempts: Sequence[Episode], base: Sequence[Episode], measure: Measure) -> dict[str, Any]:
    known, before_known = ({e.problem.id for e in side if measure(e) is not None} for side in (attempts, base))
    shared = known & before_known
    mean, before = (
        average([(e.problem.id, measure(e)) for e in side if e.problem.id in shared]).mean for side in (attempts, base)
    )
    gap: Estimate = compare(attempts, base, measure)
    change = gap.mean / before if gap.mean is not None and before else None
    return {"baseline": before, "mean": mean, "difference": asdict(gap), "change": change}
