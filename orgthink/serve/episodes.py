"""The episodes that a server runs: how many at once, who may end them, and where they are kept."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from orgthink.evaluation.compatibility import greedy_vote
from orgthink.record.episode import Episode, Problem, Sampling
from orgthink.record.folder import Journal
from orgthink.runtime import Backing, Limits, attempt
from orgthink.runtime.agent import Watcher
from orgthink.runtime.organization import Organization
from orgthink.serve.live import Board, Running
from orgthink.serve.question import Question, RequestError
from orgthink.util.errors import UserError
from orgthink.util.terminal import reason

logger = logging.getLogger(__name__)

WAIT = 1
"""Seconds after which a client that was turned away may ask again."""


LONGEST = 16
"""Characters of a token, on average: texts of all languages have fewer."""


@dataclass(frozen=True, slots=True)
class Served:
    """An organization behind the name of a model."""

    base: str
    """Its model."""
    organization: Organization
    default: Backing
    """Engine and sampling of roles without their own."""
    roles: Mapping[str, Backing]
    """Those of other roles."""
    limits: Limits
    """Of an episode. A client may ask for less."""

    def require_room(self, problem: Problem) -> None:
        """RequestError for texts longer than any model here reads, which are not encoded first."""
        most = max(backing.engine.max_context or inf for backing in (self.default, *self.roles.values()))
        if (size := len(problem.text) + sum(len(turn.content) for turn in problem.history)) > LONGEST * most:
            raise RequestError(
                f"the messages of {size:,} characters do not fit the model's context of {most:,} tokens",
                code="context_length_exceeded",
                param="messages",
            )

    def require_sampling_noise(self, sampling: Sampling) -> None:
        """RequestError if agents with the same prompt would be greedy."""
        greedy = greedy_vote(self.organization, sampling, self.limits.capacity, self.roles)
        if greedy is None:
            return
        role, agents = greedy
        same = f"{self.organization.name} gives {agents} agents the same prompt"
        ways = [f"the operator of the server can set --sampling {role}.temperature=1"]
        if role not in self.roles:
            unset = "leave temperature out, or " if self.default.sampling.temperature > 0 else ""
            ways.insert(0, f"{unset}ask for a temperature above 0")
        raise RequestError(
            f"{same}, and at temperature 0 all answer alike: {'; '.join(ways)}", code="unsupported", param="temperature"
        )


@dataclass(slots=True)
class Counts:
    """What happened since the server began."""

    ended: int = 0
    """Episodes that came to their end."""
    left: int = 0
    """Episodes whose client went away."""
    turned_away: int = 0
    """Requests that found no place."""
    sampled: int = 0
    """Tokens of all these episodes."""


class ServedEpisodes:
    """Runs episodes, a bounded number at once, and stores each: one whose client went away as cancelled."""

    def __init__(self, journal: Journal, most: int) -> None:
        self.counts, self.board = Counts(), Board(journal)
        self.most = most
        """Episodes at once."""
        self._journal = journal
        self._tasks: set[asyncio.Task[Episode]] = set()

    @property
    def running(self) -> int:
        return len(self._tasks)

    def begin(self, served: Served, question: Question, watch: Watcher) -> asyncio.Task[Episode]:
        """Start an episode; to cancel its task ends all its agents. RequestError if there is no place, or the
        question does not fit the organization or its models."""
        if len(self._tasks) >= self.most:
            self.counts.turned_away += 1
            raise RequestError(
                f"{self.most} episodes are running: ask again later",
                429,
                code="busy",
                headers={"Retry-After": str(WAIT)},
            )
        self._require_folder()
        default = served.default._replace(sampling=_drawn(served.default.sampling, question))
        served.require_room(question.problem)
        served.require_sampling_noise(default.sampling)
        running = Running(question.problem, question.beginning, served.organization.name, served.limits.capacity, watch)
        self.board.begin(running)
        task = asyncio.create_task(self._run(served, default, question, running))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda task: self.board.end(running))
        return task

    async def _run(self, served: Served, default: Backing, question: Question, running: Running) -> Episode:
        limits, left = served.limits, list[Episode]()
        if question.max_episode_tokens is not None:
            most = min(question.max_episode_tokens, limits.max_episode_tokens or question.max_episode_tokens)
            limits = replace(limits, max_episode_tokens=most)
        seeded = {
            name: b._replace(sampling=replace(b.sampling, seed=question.seed)) for name, b in served.roles.items()
        }
        try:
            how = {"roles": seeded, "limits": limits, "watch": running.watch, "cancelled": left.append}
            episode = await self._stored(await attempt(served.organization, running.problem, default, **how), running)
        except asyncio.CancelledError:
            self.counts.left += 1
            for episode in left:
                await self._stored(episode, running)
            raise
        except UserError as error:  # such as a chat template that refuses the order of the turns
            raise RequestError(f"the model cannot read these messages: {error}", param="messages") from error
        except Exception as error:
            try:
                logger.error("an episode ended: %s", self._journal.crash(running.problem.id, error))
            except (OSError, UserError) as failure:  # such as a disk that is full, or a folder that was moved
                logger.error("an episode ended: %s; crashes.log: %s", reason(error), reason(failure))
            raise RequestError("the episode failed: the log of the server says why", 500, code="bug") from error
        self.counts.ended += 1
        return episode

    def _require_folder(self) -> None:
        """RequestError if no episode can be stored: a model would be paid for it."""
        try:
            self._journal.require_folder()
        except UserError as error:
            logger.error("no episode begins: %s", reason(error))
            raise RequestError("the server cannot store episodes: its log says why", 500, code="not_stored") from error

    async def _stored(self, episode: Episode, running: Running) -> Episode:
        """The episode as it is stored. Its id is its own, also where its question was asked before. An episode that
        cannot be stored is logged: its answer is paid, and its client gets it."""
        episode = replace(episode, id=f"{episode.id}|{running.id}")
        try:
            await self.board.store(running, episode)
            self._journal.log(episode=episode.id, ended=round(time.time(), 3))
        except (OSError, UserError, ValueError) as error:  # such as a full disk, or a folder that was moved
            logger.error("episode %s is not stored: %s", episode.id, reason(error))
        finally:
            self.board.end(running)
            self.counts.sampled += sum(trace.steps for trace in episode.traces)  # now, or they would count twice
        return episode

    async def drain(self) -> None:
        """Wait for the episodes that are running."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _drawn(sampling: Sampling, question: Question) -> Sampling:
    """How tokens are drawn for a client: as it says, else as the server does; without a seed, otherwise each time."""
    return replace(
        sampling,
        temperature=sampling.temperature if question.temperature is None else question.temperature,
        top_p=sampling.top_p if question.top_p is None else question.top_p,
        seed=question.seed,
    )
