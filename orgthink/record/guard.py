"""Failures of single episodes: a bug ends only its episode, an engine error leaves a record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from orgthink.record.episode import CONTROLLER, Episode, FormatError, Problem, Status, StopReason, Trace, episode_id
from orgthink.record.episode_json import dump, load, require_integrity
from orgthink.record.folder import Journal
from orgthink.util.errors import UserError, user_input

Crash = Callable[[str, Exception], str]
"""Stores the traceback of an episode, by its id, and returns the error in one line: `Journal.crash`."""


def raised(name: str, error: Exception) -> str:
    """The `Crash` of runs that do not store tracebacks: raises the error."""
    raise error


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard around the work on one episode."""

    problem: Problem
    """The problem."""
    organization: str
    """Name of the organization."""
    sample: int
    """Number of the attempt."""
    capacity: int
    """c."""
    crash: Crash
    """Stores a traceback."""

    async def run(self, work: Awaitable[Episode], left: Sequence[Episode] = ()) -> Episode:
        """The episode, or after a bug its record with the error. UserError is raised: it concerns all episodes.

        `left` may hold the record of the work until the bug: see `attempt`.
        """
        try:
            episode = await work
            require_integrity(episode)
            return episode
        except UserError:
            raise
        except Exception as bug:
            return self.crashed(bug, left)

    def store(self, journal: Journal, episode: Episode) -> Episode:
        """Append an episode and return it; an episode that cannot be stored is replaced by its error.

        UserError if the problem or a setting cannot be stored.
        """
        try:
            journal.append(episode)
        except ValueError as bug:
            episode = self.crashed(bug)
            with user_input():
                journal.append(episode)
        return episode

    def crashed(self, bug: Exception, left: Sequence[Episode] = ()) -> Episode:
        """An episode with an error and without an answer; with the traces in `left` if they can be stored."""
        name = episode_id(self.problem, self.organization, self.sample)
        error = self.crash(name, bug)
        for episode in filter(is_storable, left):
            return replace(episode, stop=StopReason.ERROR, error=error, error_kind=None)
        root = Trace(CONTROLLER, CONTROLLER, None, (), stop=StopReason.ERROR, status=Status.ERROR, error=error)
        episode = Episode(name, self.problem, self.organization, self.capacity, (root,), self.sample)
        return replace(episode, stop=StopReason.ERROR, error=error)


def is_storable(episode: Episode) -> bool:
    """Whether a journal accepts the episode."""
    try:
        load(dump(episode))
    except Exception:
        return False
    return True


def engine_failed(episode: Episode) -> bool:
    """Whether an engine failure ended the episode: then its result says nothing about the organization.

    A failure of the root ends the episode. A failed fork is a result, and the root continues. If the episode has no
    answer and the failed agent was the last one joined (a solver, a summarizer, all thinkers of a vote), the engine
    is responsible as well, unless the organization counts it as that agent's fault: its engine refused to answer.
    """
    if episode.stop is StopReason.ERROR or episode.answer is not None:
        return episode.stop is StopReason.ERROR
    last = {join.child for join in episode.root.joins if join.at == episode.root.steps}
    last -= {fault.agent for fault in episode.format_faults}
    return any(trace.agent in last for trace in failed_agents(episode))


def failed_agents(episode: Episode) -> list[Trace]:
    """Agents whose engine failed."""
    return [trace for trace in episode.traces if trace.stop is StopReason.ERROR and trace.model is not None]


def cut_off(episode: Episode) -> bool:
    """Whether a limit ended an episode without an answer, or one of its agents that should have answered."""
    limits = (StopReason.LENGTH, StopReason.BUDGET, StopReason.DEADLINE)
    return episode.stop in limits or any(fault.kind is FormatError.TRUNCATED for fault in episode.format_faults)


def unanswered(episode: Episode) -> tuple[str, str]:
    """What ended an episode without an answer, and which options of the command line may help."""
    if cut_off(episode):
        return "a limit cut it off", "raise --max-tokens, or --max-episode-tokens or --deadline if they are set"
    if episode.stop is not StopReason.FORMAT:
        return (
            "the model wrote none where it is read",
            "look at what it wrote, or try other --prompts or a larger model",
        )
    return (
        f"the format error {episode.format_faults[-1].kind} ended it",
        "try --set tolerant=true, --set overflow=queue or a higher --capacity",
    )


def failure_message(episode: Episode) -> str:
    """The engine failure of an episode, on one line."""
    return episode.error or next((trace.error for trace in failed_agents(episode) if trace.error), "engine error")
