"""Selection of a manager's episodes for supervised fine-tuning (section 4.2 of ParaManager).

At most one episode per problem is selected, only with an all correct answer. Episodes that recovered from a failure are
preferred. No tool may dominate the calls.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from orgthink.grammar.toolcall import TAGS, BadCall, CallTags
from orgthink.measure import orchestration
from orgthink.record.episode import Episode


class Exclusion(StrEnum):
    """Why a trajectory is left out."""

    UNMANAGED = "no manager led it"
    UNGRADED = "it has no grade"
    WRONG = "its answer is not all correct"
    UNENDED = "its manager did not call final_answer"
    MALFORMED = "it ends with a malformed call"
    """The last reply has a malformed call, and no later reply recovers from it."""
    UNLISTED = "its server told its manager of the tools, which its prompt does not list"
    """A model that is trained on such a trajectory would not call the tools that its own prompt lists."""
    TEMPLATE = "another model's chat template is in its text"
    LONG = "it is too long"
    SPARE = "another one of its problem was chosen"
    DOMINATED = "one tool would have made too many of the calls"


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected episodes, and the reasons why others were left out."""

    ids: tuple[str, ...]
    """Sorted ids of the selected episodes."""
    left_out: Counter[Exclusion]
    """Number of the other episodes by reason."""

    @property
    def summary(self) -> str:
        """The counts in one line of text."""
        learned = f"{len(self.ids)} of {len(self.ids) + self.left_out.total()} trajectories are learned from"
        return "; ".join([learned, *(f"{count} left out: {reason}" for reason, count in self.left_out.most_common())])


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An episode that may be selected."""

    id: str
    problem: str
    recovered: bool
    """Whether a call failed and the answer is still all correct."""
    slips: int
    """Number of the manager's own format errors. Between two episodes that recovered, fewer are preferred."""
    tools: Counter[str]
    """Number of executed calls by tool."""

    @property
    def rank(self) -> tuple[bool, int]:
        """Sort key; a lower rank is preferred."""
        return not self.recovered, self.slips


def select(
    episodes: Iterable[Episode],
    *,
    most: float = 0.5,
    unfit: Callable[[Episode], Exclusion | None] = lambda episode: None,
    tags: Mapping[str, CallTags] | None = None,
) -> Selection:
    """Select at most one correct episode per problem. The result does not depend on the order of the episodes.

    `unfit` returns a further reason to exclude an episode, or `None`. `tags` has the tags of the calls by the label of
    the organization, where they are not the default. No tool makes more than the share `most` of all
    selected calls; episodes with the largest share of the dominating tool are removed until that holds. A share that
    cannot hold (such as 0.5 with one tool) leaves only episodes without calls. ValueError unless `most` is in (0, 1].
    """
    if not 0 < most <= 1:
        raise ValueError(f"most is {most}: the largest share of calls for one tool must be above 0 and at most 1")
    left_out: Counter[Exclusion] = Counter()
    of_problem: defaultdict[str, list[_Candidate]] = defaultdict(list)
    for episode in episodes:
        own = (tags or {}).get(episode.organization, TAGS)
        reason = _fault(episode, own) or unfit(episode)
        if reason is None:
            candidate = _candidate(episode, own)
            of_problem[candidate.problem].append(candidate)
        else:
            left_out[reason] += 1
    candidates = _one_each(of_problem)
    selected = _balanced(candidates, most)
    left_out[Exclusion.SPARE] = sum(map(len, of_problem.values())) - len(candidates)
    left_out[Exclusion.DOMINATED] = len(candidates) - len(selected)
    return Selection(tuple(sorted(candidate.id for candidate in selected)), +left_out)


def _fault(episode: Episode, tags: CallTags) -> Exclusion | None:
    """The reason to exclude an episode regardless of all others; `None` if there is none."""
    if not orchestration.managed(episode):
        return Exclusion.UNMANAGED
    if episode.grade is None:
        return Exclusion.UNGRADED
    if not episode.grade.all_correct:
        return Exclusion.WRONG
    rounds = orchestration.rounds(episode, tags)
    if not rounds or not rounds[-1].ends:
        return Exclusion.UNENDED
    return Exclusion.MALFORMED if any(isinstance(call, BadCall) for call in rounds[-1].reply.calls) else None


def _candidate(episode: Episode, tags: CallTags) -> _Candidate:
    return _Candidate(
        episode.id,
        episode.problem.id,
        orchestration.recovered(episode, tags),
        len(episode.format_faults),
        orchestration.tools(episode),
    )


def _one_each(of_problem: dict[str, list[_Candidate]]) -> list[_Candidate]:
    """The best candidate of each problem. Ties go to the candidate that keeps the largest share of a tool lowest.

    Problems with one best candidate come first, so that the choices for the other problems can balance them.
    """
    best = {
        problem: sorted(
            (c for c in candidates if c.rank == min(other.rank for other in candidates)), key=lambda c: c.id
        )
        for problem, candidates in of_problem.items()
    }
    calls: Counter[str] = Counter()
    selected = []
    for problem in sorted(best, key=lambda problem: (len(best[problem]), problem)):
        candidate = min(best[problem], key=lambda c: _largest(calls + c.tools)[1])
        selected.append(candidate)
        calls += candidate.tools
    return selected


def _largest(calls: Counter[str]) -> tuple[str, float]:
    """The tool with the largest share of the calls, and that share; 0 without any call."""
    tool = max(sorted(calls), key=calls.__getitem__, default="")
    return tool, calls[tool] / calls.total() if calls else 0.0


def _balanced(candidates: list[_Candidate], most: float) -> list[_Candidate]:
    """Remove candidates until no tool makes more than the share `most` of the calls.

    While a tool exceeds it, the candidate with the largest share of that tool goes. Ties: first those that recovered
    from nothing, then those with the most calls of the tool.
    """
    selected, calls = list(candidates), sum((c.tools for c in candidates), Counter[str]())
    while (top := _largest(calls))[1] > most:
        tool = top[0]
        selected.sort(key=lambda c: (_share(c, tool), not c.recovered, c.tools[tool], c.id))
        while calls[tool] and calls[tool] / calls.total() > most:
            calls -= selected.pop().tools
    return selected


def _share(candidate: _Candidate, tool: str) -> float:
    return candidate.tools[tool] / candidate.tools.total() if candidate.tools else 0.0
