"""Which of a manager's episodes are learned from (section 4.2 of ParaManager): at most one a problem, right ones only,
those that recovered from a failure first, and so that no tool dominates.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from orgthink.episode import Episode
from orgthink.grammar.toolcall import BadCall
from orgthink.measure import orchestration


class Exclusion(StrEnum):
    """Why a trajectory is left out."""

    UNMANAGED = "no manager led it"
    UNGRADED = "it has no grade"
    WRONG = "its answer is not all correct"
    UNENDED = "its manager did not call final_answer"
    MALFORMED = "it ends with a malformed call"
    """Of the last reply: nothing came after it that could have recovered from it."""
    UNLISTED = "its server told its manager of the tools, which its prompt does not list"
    """A model that is trained on it would not call tools that its own prompt lists."""
    TEMPLATE = "another model's chat template is in its text"
    LONG = "it is too long"
    SPARE = "another one of its problem was chosen"
    DOMINATED = "one tool would have made too many of the calls"


@dataclass(frozen=True, slots=True)
class Selection:
    """What is learned from, and what is not."""

    ids: tuple[str, ...]
    """Of the episodes that are retained, in order of the ids."""
    left_out: Counter[Exclusion]
    """How many of the others, by the reason."""

    @property
    def summary(self) -> str:
        """On one line."""
        learned = f"{len(self.ids)} of {len(self.ids) + self.left_out.total()} trajectories are learned from"
        return "; ".join([learned, *(f"{count} left out: {reason}" for reason, count in self.left_out.most_common())])


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An episode that may be learned from."""

    id: str
    problem: str
    recovered: bool
    """Whether a call failed and the manager came to the right answer all the same."""
    slips: int
    """Calls of its own that could not be made: of two that recovered, the one that only others failed is preferred."""
    tools: Counter[str]
    """Calls that were executed."""

    @property
    def rank(self) -> tuple[bool, int]:
        """Lower is preferred."""
        return not self.recovered, self.slips


def select(
    episodes: Iterable[Episode],
    *,
    most: float = 0.5,
    unfit: Callable[[Episode], Exclusion | None] = lambda episode: None,
) -> Selection:
    """Choose at most one right episode of each problem; the same ones in whatever order they come.

    `unfit` says what else is wrong with an episode. No tool makes more than the share `most` of all calls: where that
    takes leaving some out, they are those that lean most on the tool that dominates. A share that cannot hold, such as
    half with one tool, leaves only episodes without any call, or none. ValueError unless `most` is in (0, 1].
    """
    if not 0 < most <= 1:
        raise ValueError(f"most is {most}: the share of calls that a tool may make is above 0, and 1 at most")
    left_out: Counter[Exclusion] = Counter()
    of_problem: defaultdict[str, list[_Candidate]] = defaultdict(list)
    for episode in episodes:
        reason = _fault(episode) or unfit(episode)
        if reason is None:
            candidate = _candidate(episode)
            of_problem[candidate.problem].append(candidate)
        else:
            left_out[reason] += 1
    candidates = _one_each(of_problem)
    selected = _balanced(candidates, most)
    left_out[Exclusion.SPARE] = sum(map(len, of_problem.values())) - len(candidates)
    left_out[Exclusion.DOMINATED] = len(candidates) - len(selected)
    return Selection(tuple(sorted(candidate.id for candidate in selected)), +left_out)


def _fault(episode: Episode) -> Exclusion | None:
    """What is wrong with an episode by itself."""
    if not orchestration.managed(episode):
        return Exclusion.UNMANAGED
    if episode.grade is None:
        return Exclusion.UNGRADED
    if not episode.grade.all_correct:
        return Exclusion.WRONG
    rounds = orchestration.rounds(episode)
    if not rounds or not rounds[-1].ends:
        return Exclusion.UNENDED
    return Exclusion.MALFORMED if any(isinstance(call, BadCall) for call in rounds[-1].reply.calls) else None


def _candidate(episode: Episode) -> _Candidate:
    return _Candidate(
        episode.id,
        episode.problem.id,
        orchestration.recovered(episode),
        len(episode.format_faults),
        orchestration.tools(episode),
    )


def _one_each(of_problem: dict[str, list[_Candidate]]) -> list[_Candidate]:
    """The best candidate of each problem; among equals, the one that keeps the tools in balance.

    Problems with no choice come first, so that the others can make up for them.
    """
    best = {
        problem: sorted(
            (one for one in candidates if one.rank == min(other.rank for other in candidates)), key=lambda one: one.id
        )
        for problem, candidates in of_problem.items()
    }
    made: Counter[str] = Counter()
    selected = []
    for problem in sorted(best, key=lambda problem: (len(best[problem]), problem)):
        one = min(best[problem], key=lambda one: _largest(made + one.tools)[1])
        selected.append(one)
        made += one.tools
    return selected


def _largest(made: Counter[str]) -> tuple[str, float]:
    """The tool that makes the largest share of the calls, and the share; 0 without any call."""
    tool = max(sorted(made), key=made.__getitem__, default="")
    return tool, made[tool] / made.total() if made else 0.0


def _balanced(candidates: list[_Candidate], most: float) -> list[_Candidate]:
    """What is left when no tool makes more than its share any more.

    The tool that dominates loses the candidates that lean on it most; of those that do equally, the ones that did not
    recover from anything, then the ones with most calls.
    """
    selected, made = list(candidates), sum((one.tools for one in candidates), Counter[str]())
    while (top := _largest(made))[1] > most:
        tool = top[0]
        selected.sort(key=lambda one: (_share(one, tool), not one.recovered, one.tools[tool], one.id))
        while made[tool] and made[tool] / made.total() > most:
            made -= selected.pop().tools
    return selected


def _share(one: _Candidate, tool: str) -> float:
    return one.tools[tool] / one.tools.total() if one.tools else 0.0
