"""Grades episodes by their tasks, and again if only the grader failed."""

from __future__ import annotations

from dataclasses import replace

from orgthink.record.episode import Episode, Grade, StopReason
from orgthink.record.episode_json import require_integrity
from orgthink.record.folder import RunFolder
from orgthink.record.guard import Crash, engine_failed
from orgthink.tasks.task import Task
from orgthink.util.concurrency import run_all
from orgthink.util.errors import ErrorKind, Failure, UserError
from orgthink.util.threads import PROGRAMS, off_loop


def grade(episode: Episode, task: Task) -> Episode:
    """The episode with its grade: 0 without an answer. An episode that an engine failed stays ungraded.

    TypeError for a grader that does not return a Grade.
    """
    if engine_failed(episode):
        return episode
    if episode.answer is None:
        return replace(episode, grade=Grade(0, episode.problem.required))
    found = task.grade(episode.problem, episode.answer)
    if not isinstance(found, Grade):
        raise TypeError(f"the grader returned {found!r}: it must return a Grade")
    return replace(episode, grade=found)


def grade_or_keep(episode: Episode, task: Task) -> Episode:
    """The episode with its grade. If a tool of the grader fails, the episode fails but keeps its answer."""
    try:
        return grade(episode, task)
    except Failure as error:
        return replace(episode, stop=StopReason.ERROR, error=f"not graded: {error}", error_kind=ErrorKind.TOOL)


async def graded(episode: Episode, task: Task, *, threaded: bool = True) -> Episode:
    """`grade_or_keep`, in a thread unless `threaded` is false: a slow grader would block the other episodes."""
    return await off_loop(PROGRAMS, grade_or_keep, episode, task) if threaded else grade_or_keep(episode, task)


async def grade_safely(episode: Episode, task: Task, crash: Crash, *, threaded: bool = True) -> Episode:
    """The graded episode. A bug of the grader loses only the grade; its traceback is stored. A UserError is raised."""
    try:
        found = await graded(episode, task, threaded=threaded)
        require_integrity(found)
        return found
    except UserError:
        raise
    except Exception as bug:
        return replace(episode, stop=StopReason.ERROR, error=crash(episode.id, bug), error_kind=ErrorKind.TOOL)


def awaits_grade(episode: Episode) -> bool:
    """Whether only its grader failed: the answer can be graded again."""
    return (
        episode.stop is StopReason.ERROR
        and episode.error_kind is ErrorKind.TOOL
        and episode.root.stop is not StopReason.ERROR
    )


async def grade_again(folder: RunFolder, task: Task, concurrency: int) -> None:
    """Grade the stored episodes that await their grade, and store the result. Needs no model."""
    if not any(map(awaits_grade, folder.episodes())):
        return
    with folder.journal(redo=None) as journal:

        async def again(episode: Episode) -> Episode:
            return await grade_safely(
                replace(episode, stop=episode.root.stop, error=None, error_kind=None), task, journal.crash
            )

        waiting = [episode for episode in folder.episodes() if awaits_grade(episode)]
        folder.revise({one.id: one for one in await run_all(again, waiting, concurrency)})
