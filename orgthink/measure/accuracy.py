"""Accuracy of answers, and the share of episodes that failed.

The accuracy of an episode without a grade is `None`, never 0. A failed episode with a grade counts as wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import comb

from orgthink.record.episode import Episode, FormatError, StopReason, Trace
from orgthink.tasks.vote import winner
from orgthink.util.errors import ErrorKind
from orgthink.util.registry import registered_only

_STOPS = {
    StopReason.FORMAT: ErrorKind.PROTOCOL,
    StopReason.BUDGET: ErrorKind.BUDGET,
    StopReason.DEADLINE: ErrorKind.DEADLINE,
}


def at_least(episode: Episode, a: int) -> bool | None:
    """`≥ a correct`: whether at least `a` different solutions were found.

    `None` without a grade, or if the problem requires fewer than `a` solutions.
    """
    grade = episode.grade
    return None if grade is None or a > grade.required else grade.correct >= a


def all_correct(episode: Episode) -> bool | None:
    """Whether all n_s required solutions were found; `None` without a grade."""
    return None if episode.grade is None else episode.grade.all_correct


def mixed(episodes: Iterable[Episode]) -> list[str]:
    """Problems that some graded episodes solve and others do not (section 4.2 of ParaManager)."""
    outcomes: defaultdict[str, set[bool]] = defaultdict(set)
    for episode in episodes:
        if (outcome := all_correct(episode)) is not None:
            outcomes[episode.problem.id].add(outcome)
    return [problem for problem, different in outcomes.items() if len(different) > 1]


def pass_at_k(samples: Sequence[Episode], k: int) -> float | None:
    """pass@k: probability that at least one of k samples is all correct; `None` if fewer than k are graded.

    The estimate from n ≥ k graded samples with c correct ones is unbiased: 1 - C(n - c, k) / C(n, k) (Chen et al. 2021,
    arXiv:2107.03374). ValueError if k < 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}: pass@k needs at least one sample")
    graded = [episode.grade.all_correct for episode in samples if episode.grade is not None]
    n, c = len(graded), sum(graded)
    return 1 - comb(n - c, k) / comb(n, k) if n >= k else None


def maj_at_k(samples: Sequence[Episode], k: int) -> float | None:
    """maj@k: whether the most frequent answer of the first k samples is all correct, as a vote counts them, 0 without
    any answer.

    `None` if fewer than k are graded, for problems that ask for several solutions, and where answers are compared by
    running programs.
    """
    graded = [episode for episode in samples if episode.grade is not None][:k]
    if len(graded) < k or any(episode.problem.required > 1 for episode in graded):
        return None
    with registered_only(), suppress(Exception):  # the task may be a plug-in's
        place = winner(graded[0].problem, [episode.answer or "" for episode in graded])
        return float(place is not None and bool(all_correct(graded[place])))
    return None


def error_kinds(episode: Episode) -> frozenset[ErrorKind]:
    """Kinds of the errors that stopped the episode or one of its agents.

    An error without a kind counts as a tool error for an agent without a model, else as an engine error.
    """
    found = [_kind(trace) for trace in episode.traces[1:]]
    own = episode.error_kind or ErrorKind.ENGINE if episode.stop is StopReason.ERROR else _STOPS.get(episode.stop)
    return frozenset(kind for kind in (own, *found) if kind is not None)


def failed(episode: Episode) -> bool:
    """Whether the engine or a tool failed, for the episode or for one of its agents."""
    return StopReason.ERROR in (episode.stop, *(trace.stop for trace in episode.traces))


def has_format_error(episode: Episode) -> bool:
    """Whether any agent made a format error. Truncation is reported separately and does not count.

    Format errors are the paper's four kinds (section 3.2 of AsyncThink), malformed tags, and a manager's replies
    without a call or with an invalid call.
    """
    return any(fault.kind is not FormatError.TRUNCATED for fault in episode.format_faults)


def was_truncated(episode: Episode) -> bool:
    """Whether a token limit or another budget truncated any agent, workers included."""
    return any(trace.stop in (StopReason.LENGTH, StopReason.BUDGET) for trace in episode.traces)


def _kind(trace: Trace) -> ErrorKind | None:
    if trace.stop is not StopReason.ERROR:
        return _STOPS.get(trace.stop)
    return trace.error_kind or (ErrorKind.TOOL if trace.model is None else ErrorKind.ENGINE)
