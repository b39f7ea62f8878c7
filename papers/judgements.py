"""Judgements of verifiers (section 3.2 of MarsRL) in an episode's record.

A verifier gets the solver's solution, or that of the last corrector that finished. The task tells whether it was right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orgthink.grammar.verdict import Verdict, VerdictForm, read_report
from orgthink.measure.verification import agents_of_root, solution_grade
from orgthink.record.episode import Episode, Status, Trace


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verifier's verdict on a solution, and whether the solution was right."""

    problem: str
    """Id of the problem."""
    agent: str
    """Id of the verifier."""
    stream: str
    """`verifier-1` if the solution was a solver's, `verifier-2` if a corrector's."""
    verdict: Verdict
    """The verdict; UNPARSED for a report that was cut off."""
    right: bool
    """Whether the solution was right."""

    @property
    def agrees(self) -> bool:
        return self.verdict.agrees(self.right)


def judgements(episode: Episode, form: VerdictForm) -> list[Judgement]:
    """Every verification, in order; `form` is that of the prompts' style."""
    return [
        Judgement(
            episode.problem.id,
            verifier.agent,
            _stream(verifier, judged),
            _verdict(verifier, form),
            solution_grade(episode, judged).all_correct,
        )
        for verifier, judged in with_draft(agents_of_root(episode))
        if verifier.role == "verifier" and "/verification-" in verifier.agent  # and not a review of its own report
    ]


def with_draft(traces: Iterable[Trace]) -> Iterator[tuple[Trace, Trace]]:
    """Each verifier and corrector with the agent whose solution it got."""
    draft: Trace | None = None
    for trace in traces:
        if trace.role in ("verifier", "corrector"):
            if draft is None:
                raise ValueError(f"{trace.agent} has no solution to work on: there is no solver before it")
            yield trace, draft
        if trace.role in ("solver", "corrector") and (draft is None or trace.status is Status.OK):
            draft = trace


def _stream(agent: Trace, draft: Trace) -> str:
    return f"{agent.role}-{1 if draft.role == 'solver' else 2}"


def _verdict(verifier: Trace, form: VerdictForm) -> Verdict:
    return read_report(verifier.returned or "", form).verdict if verifier.status is Status.OK else Verdict.UNPARSED
