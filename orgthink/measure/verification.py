"""Grades of solutions within an episode (section 3.2 of MarsRL): the task tells whether one was right."""

from __future__ import annotations

from orgthink.grammar.solution import read_proposal
from orgthink.record.episode import Episode, Grade, Status, Trace
from orgthink.tasks import task_of


def solver_grade(episode: Episode) -> Grade | None:
    """Grade of the solver's own answer, before any verification.

    `None` if the episode is not graded or has no solver, or if its task is not known here. Where an answer cannot be
    graded again, because its programs are not run or the record lacks what the grader needs, the episode's own grade
    serves if its answer is the solver's.
    """
    solvers = [trace for trace in agents_of_root(episode) if trace.role == "solver"]
    if episode.grade is None or not solvers or task_of(episode.problem) is None:
        return None
    solver = [solvers[0], *[trace for trace in solvers if trace.status is Status.OK]][-1]
    try:
        return solution_grade(episode, solver)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # the record may come from elsewhere
        return episode.grade if _answer(solver) == episode.answer else None


def agents_of_root(episode: Episode) -> list[Trace]:
    """The root and its children. Deeper agents work on sub-queries, which no task can grade."""
    return [trace for trace in episode.traces if trace is episode.root or trace.parent == episode.root.agent]


def _answer(solved: Trace) -> str | None:
    proposal = read_proposal(solved.returned or "", ended=True)
    return proposal.result if solved.status is Status.OK else proposal.answer


def solution_grade(episode: Episode, solved: Trace) -> Grade:
    """Grade of a solution's answer; 0 without an answer."""
    answer = _answer(solved)
    problem, task = episode.problem, task_of(episode.problem)
    if task is None:
        raise ValueError(f"task {problem.task} is not known here: it cannot be graded again")
    return Grade(0, problem.required) if answer is None else task.grade(problem, answer)
