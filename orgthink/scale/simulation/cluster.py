"""Organizations on a cluster of replicas: a simulation by events.

An agent sends a request to a replica, decodes, forks, joins. Its first request goes to the replica with the fewest
requests, and of those to the one with the fewest agents; the later ones return to it, where its context is cached.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orgthink.errors import UserError
from orgthink.scale.simulation.engine import EngineModel
from orgthink.scale.simulation.program import AgentProgram, DecodeTokens, ForkChild, JoinChild, ReadTokens, WaitSeconds
from orgthink.scale.simulation.replica import EngineReplica, ReplicaRequest


class Simulated(NamedTuple):
    """What a workload took."""

    seconds: float
    """Wall clock, from the start to the end of the last episode."""
    episodes: tuple[float, ...]
    """Seconds at which each episode ended. All start at 0."""
    busy: float
    """Seconds that all replicas together spent in steps."""
    replicas: int
    """Number of replicas."""
    steps: int
    """Steps of all replicas."""
    sampled: int
    """Sampled tokens, those of aborted requests included."""
    read: int
    """Prompt and injected tokens that were read."""

    @property
    def utilization(self) -> float:
        """Share of the replicas' time that they spent in steps."""
        return self.busy / (self.replicas * self.seconds) if self.seconds else 0.0

    @property
    def rows(self) -> float:
        """Sampled tokens of a step: the mean batch of a busy replica."""
        return self.sampled / self.steps if self.steps else 0.0


@dataclass(slots=True, eq=False)
class _Agent:
    """An agent in progress."""

    program: AgentProgram
    """What it does."""
    episode: int
    """Which episode it belongs to."""
    parent: _Agent | None
    """Who forked it."""
    rest: Sequence[int]
    """Tokens that it decodes from each operation on, up to the end of the request."""
    next: int = 0
    """Its next operation."""
    context: int = 0
    """Tokens of its context that a replica has read or sampled."""
    unread: int = 0
    """Tokens of its context that no replica has read."""
    forks: list[_Agent] = field(default_factory=list)
    """Its children, in order."""
    joined: int | None = None
    """The child that it waits for."""
    replica: EngineReplica[_Agent] | None = None
    """Where its context is cached."""
    request: ReplicaRequest[_Agent] | None = None
    """Its current request."""
    over: bool = False
    """Whether it has ended."""


def simulate(programs: Sequence[AgentProgram], model: EngineModel, replicas: int = 1) -> Simulated:
    """Run all programs at once, each as an episode."""
    return _Cluster(model, replicas).run(programs)


class _Cluster:
    def __init__(self, model: EngineModel, replicas: int) -> None:
        if replicas < 1:
            raise UserError(f"{replicas} replicas: there must be at least one")
        self._model = model
        self._replicas: list[EngineReplica[_Agent]] = [EngineReplica(model) for _ in range(replicas)]
        self._index = {replica: i for i, replica in enumerate(self._replicas)}
        self._events: list[tuple[float, int, int, Callable[[], None]]] = []
        """Heap of (time, replica, number that breaks ties, what happens). What is not a replica's comes after them."""
        self._order = 0
        self._now: float = 0
        self._ends: list[float] = []

    def run(self, programs: Sequence[AgentProgram]) -> Simulated:
        self._ends = [0.0] * len(programs)
        for i, program in enumerate(programs):
            self._start(program, i, None)
        while self._events:
            self._now, _, _, happen = heapq.heappop(self._events)
            happen()
        return Simulated(
            max(self._ends, default=0.0),
            tuple(self._ends),
            sum(replica.busy for replica in self._replicas),
            len(self._replicas),
            sum(replica.steps for replica in self._replicas),
            sum(replica.sampled for replica in self._replicas),
            sum(replica.read for replica in self._replicas),
        )

    def _start(self, program: AgentProgram, episode: int, parent: _Agent | None) -> _Agent:
        unread, rest = program.prompt - program.cached, _rest(program)
        agent = _Agent(program, episode, parent, rest, unread=unread, context=program.cached)
        self._after(0, lambda: self._proceed(agent))
        return agent

    def _after(self, seconds: float, happen: Callable[[], None]) -> None:
        self._push(self._now + seconds, len(self._replicas), happen)

    def _push(self, time: float, place: int, happen: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (time, place, self._order, happen))

    def _proceed(self, agent: _Agent) -> None:
        """Let an agent go on, up to something that takes time."""
        while not agent.over and agent.next < len(agent.program.operations):
            operation = agent.program.operations[agent.next]
            agent.next += 1
            match operation:
                case DecodeTokens(tokens):
                    return self._decode(agent, tokens)
                case ReadTokens(tokens):
                    self._leave(agent)
                    agent.unread += tokens
                case ForkChild(child):
                    agent.forks.append(self._start(child, agent.episode, agent))
                case JoinChild(fork):
                    if not agent.forks[fork].over:
                        self._leave(agent)
                        agent.joined = fork
                        return
                case WaitSeconds(seconds):
                    self._leave(agent)
                    return self._after(seconds, lambda: self._proceed(agent))
        if not agent.over:
            self._end(agent)

    def _decode(self, agent: _Agent, tokens: int) -> None:
        """Decode on in the agent's request, or send another one."""
        if agent.request is not None and agent.replica is not None:
            agent.context += tokens
            agent.replica.extend(agent.request, tokens)
            return
        read = agent.context + agent.unread
        unread = self._model.unread(agent.context, agent.unread, sampled=agent.replica is not None)
        request = ReplicaRequest(agent, unread, read, tokens, read + tokens + agent.rest[agent.next])
        agent.context, agent.unread = read + tokens, 0
        self._after(self._model.turnaround, lambda: self._submit(request))

    def _submit(self, request: ReplicaRequest[_Agent]) -> None:
        agent = request.agent
        if agent.over:
            return
        if agent.replica is None:
            agent.replica = min(self._replicas, key=lambda replica: (replica.load, replica.agents))
            agent.replica.agents += 1
        agent.request = request
        agent.replica.submit(request, self._now)
        self._plan(agent.replica)

    def _leave(self, agent: _Agent) -> None:
        if agent.request is not None and agent.replica is not None:
            agent.replica.remove(agent.request, self._now)
            agent.request = None
            self._plan(agent.replica)

    def _end(self, agent: _Agent) -> None:
        """End an agent, and the children that it has not joined."""
        agent.over = True
        self._leave(agent)
        for child in agent.forks:
            if not child.over:
                self._end(child)
        parent = agent.parent
        if parent is None:
            self._ends[agent.episode] = self._now
        elif not parent.over and parent.joined is not None and parent.forks[parent.joined] is agent:
            parent.joined = None
            self._proceed(parent)

    def _plan(self, replica: EngineReplica[_Agent]) -> None:
        """Put the replica's next event in place of an earlier one."""
        replica.version += 1
        version, time = replica.version, replica.next()

        def happen() -> None:
            if version == replica.version:
                for request in replica.advance():
                    self._proceed(request.agent)
                self._plan(replica)

        if time is not None:
            self._push(time, self._index[replica], happen)


def _rest(program: AgentProgram) -> list[int]:
    """From each operation on, the last one's end included: tokens up to the end of the request."""
    rest = [0]
    for operation in reversed(program.operations):
        ends = isinstance(operation, ReadTokens | WaitSeconds)
        rest.append(0 if ends else rest[-1] + (operation.tokens if isinstance(operation, DecodeTokens) else 0))
    return rest[::-1]
