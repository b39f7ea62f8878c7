"""One episode of many: a bug in it ends it alone, and its traceback is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from orgthink.record.episode import CONTROLLER, Episode, Problem, Status, StopReason, Trace, episode_id
from orgthink.record.episode_json import dump, load
from orgthink.record.integrity import require_integrity
from orgthink.record.journal import Journal
from orgthink.util.errors import UserError

Crash = Callable[[str, Exception], str]
"""Stores the traceback of what ended an episode, by the episode's id, and returns it in one line: `Journal.crash`."""


def raised(name: str, error: Exception) -> str:
    """Stands where no tracebacks are stored: whoever runs the episode gets the error."""
    raise error


@dataclass(frozen=True, slots=True)
class Guard:
    """Around the work on one episode."""

    problem: Problem
    """What is asked."""
    organization: str
    """Name of who works on it."""
    sample: int
    """Which of several attempts."""
    capacity: int
    """c."""
    crash: Crash
    """Stores a traceback."""

    async def run(self, work: Awaitable[Episode], left: Sequence[Episode] = ()) -> Episode:
        """The episode of this work, or what is left of it after a bug, such as a number that is none. A UserError is
        about all episodes, and is raised. `left` is what a bug in the work leaves by then: see `attempt`."""
        try:
            episode = await work
            require_integrity(episode)
            return episode
        except UserError:
            raise
        except Exception as bug:
            return self.crashed(bug, left)

    def store(self, journal: Journal, episode: Episode) -> Episode:
        """Append an episode and return it; what is left of it in its place if it cannot be stored. OSError as such;
        UserError if nothing of it can be stored."""
        try:
            journal.append(episode)
        except ValueError as bug:
            episode = self.crashed(bug)
            try:
                journal.append(episode)
            except ValueError as error:  # it is the problem, or a setting
                raise UserError(str(error)) from error
        return episode

    def crashed(self, bug: Exception, left: Sequence[Episode] = ()) -> Episode:
        """What is left of the episode, with the error and without an answer, as the work `left` it if that can be
        stored."""
        name = episode_id(self.problem, self.organization, self.sample)
        error = self.crash(name, bug)
        for episode in filter(is_storable, left):
            return replace(episode, stop=StopReason.ERROR, error=error, error_kind=None)
        root = Trace(CONTROLLER, CONTROLLER, None, (), stop=StopReason.ERROR, status=Status.ERROR, error=error)
        return Episode(
            id=name,
            problem=self.problem,
            organization=self.organization,
            capacity=self.capacity,
            traces=(root,),
            sample=self.sample,
            stop=StopReason.ERROR,
            error=error,
        )


def is_storable(episode: Episode) -> bool:
    """Whether a journal takes the episode."""
    try:
        load(dump(episode))
    except Exception:  # whatever a bug left in it
        return False
    return True
