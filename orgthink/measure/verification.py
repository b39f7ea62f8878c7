"""Judgements of verifiers (section 3.2 of MarsRL) in an episode's record.

A verifier gets the solver's solution, or that of the last corrector that finished. The task tells whether it was right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orgthink.grammar.solution import read_proposal
from orgthink.grammar.verdict import Verdict, VerdictForm, read_report
from orgthink.record.episode import Episode, Grade, Status, Trace
from orgthink.tasks import task_of


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


def solver_grade(episode: Episode) -> Grade | None:
    """Grade of the solver's own answer, before any verification.

    `None` if the episode is not graded or has no solver, or if its task is not known here. Where an answer cannot be
    graded again, because its programs are not run or the record lacks what the grader needs, the episode's own grade
    serves if its answer is the solver's.
    """
    solvers = [trace for trace in _own(episode) if trace.role == "solver"]
    if episode.grade is None or not solvers or task_of(episode.problem) is None:
        return None
    whole = [trace for trace in solvers if trace.status is Status.OK]
    solver = [solvers[0], *whole][-1]
    try:
        return _grade(episode, solver)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # the record may come from elsewhere
        return episode.grade if _answer(solver) == episode.answer else None


def judgements(episode: Episode, form: VerdictForm) -> list[Judgement]:
    """Every verification, in order; `form` is that of the prompts' style."""
    return [
        Judgement(
            episode.problem.id,
            verifier.agent,
            _stream(verifier, judged),
            _verdict(verifier, form),
            _grade(episode, judged).all_correct,
        )
        for verifier, judged in _with_draft(_own(episode))
        if verifier.role == "verifier" and "/verification-" in verifier.agent  # and not a review of its own report
    ]


def _own(episode: Episode) -> list[Trace]:
    """The root and its children. Deeper agents work on sub-queries, which no task can grade."""
    return [trace for trace in episode.traces if trace is episode.root or trace.parent == episode.root.agent]


def _with_draft(traces: Iterable[Trace]) -> Iterator[tuple[Trace, Trace]]:
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


def _answer(solved: Trace) -> str | None:
    proposal = read_proposal(solved.returned or "", ended=True)
    return proposal.result if solved.status is Status.OK else proposal.answer


def _grade(episode: Episode, solved: Trace) -> Grade:
    """Grade of a solution's answer; 0 without an answer."""
    answer = _answer(solved)
    problem, task = episode.problem, task_of(episode.problem)
    if task is None:
        raise ValueError(f"task {problem.task} is not known here: it cannot be graded again")
    return Grade(0, problem.required) if answer is None else task.grade(problem, answer)
