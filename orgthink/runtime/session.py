"""A session: one episode while it happens. The primitives of every organization, which record themselves.

`agent` makes an agent, `fork` starts it while its parent continues, `join` waits for it, `call` does both. `nested` is
the session of an organization that works in the place of a forked agent.
A worker's failure is a result with a status; only a bug ends its siblings. Whatever ends an episode ends
its agents, and ending an agent aborts its request to the engine.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from typing import Any, TypeVar

from orgthink.engines.engine import EngineUnavailable, Tools
from orgthink.record.episode import (
    CONTROLLER,
    CancelSource,
    Edge,
    EdgeKind,
    FormatError,
    FormatFault,
    Message,
    Problem,
    Span,
    Status,
    StopReason,
    Trace,
)
from orgthink.runtime.agent import Agent, Result, Watcher, Work
from orgthink.runtime.approval import Approve, allowed
from orgthink.runtime.budget import FORKS, BudgetExhausted, Limits
from orgthink.runtime.context import Backing, LongPrompts
from orgthink.runtime.deadline import DeadlineMissed, end, within
from orgthink.util.concurrency import tell_waits
from orgthink.util.errors import Failure, UserError

T = TypeVar("T")


@dataclass(slots=True)
class _Fork:
    """A fork under way."""

    child: Agent
    task: asyncio.Task[None]


class Session:
    """One episode while it happens. Made by `attempt`; organizations use it."""

    def __init__(
        self,
        problem: Problem,
        default: Backing,
        *,
        roles: Mapping[str, Backing] | None = None,
        limits: Limits | None = None,
        sample: int = 0,
        watch: Watcher | None = None,
        since: float = 0.0,
        approve: Approve | None = None,
    ) -> None:
        """`approve` decides about every fork before it begins. `since` is the seconds that an episode which goes on has
        taken already."""
        self.problem, self.limits, self.sample = problem, limits or Limits(), sample
        self.agents: list[Agent] = []
        """The root, then in the order they were forked."""
        self.root: Agent | None = None
        """Agent that does the organization's own work; `None` before it is made."""
        self._place_of: Agent | None = None
        """The forked agent in whose place the organization works, which its root becomes."""
        self.so_far: Callable[[], str | None] = lambda: None
        """The answer if a deadline or a budget ended the episode now; set by organizations that have found something
        before they are done."""
        self._faulty: list[Agent] = []
        """Agents that made a format error, in order of time."""
        self._gone: list[str | None] = []
        """Errors of forks without an engine, such as a server that is gone."""
        self._default, self._roles = default, dict(roles or {})
        self._account, self._long_prompts = self.limits.account(), LongPrompts((asyncio.Lock(), {}))
        self._watch: Watcher = watch or (lambda kind, agent, text: None)
        self._forks: defaultdict[str, dict[str, _Fork]] = defaultdict(dict)
        """By parent and key, until they are joined."""
        self._names: Counter[str] = Counter()
        self._tasks = asyncio.TaskGroup()
        self._operator = asyncio.current_task()
        """Task of the caller: if it is cancelled, the operator ended the episode."""
        self._zero = asyncio.get_running_loop().time() - since
        seconds = self.limits.episode_seconds
        self._over = inf if seconds is None else asyncio.get_running_loop().time() + seconds
        """When the deadline of the episode passes, on the clock of the event loop."""
        self._approve = approve
        self._free = asyncio.Semaphore(self.capacity)
        """Places in the pool."""
        self._placed: set[Agent] = set()

    @property
    def capacity(self) -> int:
        """c, the organizer included."""
        return self.limits.capacity

    @property
    def seed(self) -> int | None:
        """Seed of the sampling, where it has one: what an organization draws itself depends on it, too."""
        return self._default.sampling.seed

    @property
    def unavailable(self) -> str | None:
        """The first error of a fork without an engine."""
        return next(iter(self._gone), None)

    def clock(self) -> float:
        """Seconds since the episode began."""
        return asyncio.get_running_loop().time() - self._zero

    def agent(
        self,
        role: str,
        messages: tuple[Message, ...],
        *,
        model: str | None = None,
        tools: Tools = (),
        seed: int | None = None,
        trace: Trace | None = None,
        inherits: Agent | None = None,
    ) -> Agent:
        """A new agent. The first is the root; every other one is forked before it acts. BudgetExhausted if an
        organization in the place of an agent may have no root with a model.

        Its tokens are those of `model`, a name under which an engine was given to the session, or those of its role.
        `tools` are what it may call natively, where its engine can. With a `seed` of its own it draws the same tokens
        in one segment as in many. `trace` is its record from an earlier session: it is where that ends, so it acts on
        if it was cut off by the limit of a segment, and else has ended as it did. What it forked is forked again, and
        what it spent is not charged again. Its context begins as that of the agent is now that it `inherits` from,
        in place of the messages; UserError if another model has decoded its tokens.
        """
        own, limit = self._roles.get(model or role), self.limits.max_tokens
        if own is not None and limit is not None:
            limit = max(limit, own.sampling.max_tokens)  # the budget of all does not cut a role's own
        engine, sampling = own or self._default
        spans: tuple[Span, ...] = ()
        if inherits is not None:
            messages, tools, spans = inherits.messages, inherits.tools, inherits.inherited()
            if not self.same_model(model or role, inherits.role):
                theirs = self._backing(inherits.role).engine.model
                raise UserError(
                    f"only the same model inherits a context: {inherits.role} has {theirs}, {role} {engine.model}"
                )
        return self._new(role, messages, Backing(engine.for_role(role), sampling), limit, tools, seed, trace, spans)

    def _backing(self, role: str) -> Backing:
        return self._roles.get(role) or self._default

    def same_model(self, role: str, other: str) -> bool:
        """Whether two roles have the same model, so that tokens of one mean the same to the other."""
        return self._backing(role).engine.model == self._backing(other).engine.model

    def native_calls(self, role: str) -> bool:
        """Whether agents of a role are told of their tools by their engine, so that their prompt need not."""
        return self._backing(role).engine.native_calls

    def controller(self, role: str = CONTROLLER, *, trace: Trace | None = None) -> Agent:
        """A root without a model: the organization's own code, which forks and joins. With its record from an earlier
        session it has been at work since then."""
        assert self.root is None, f"{self.root.id} is the root: make the controller first"
        return self._new(role, (), None, trace=trace)

    def code(self, role: str) -> Agent:
        """An agent without a model that is forked: a tool."""
        return self._new(role, (), None)

    def nested(self, agent: Agent, problem: Problem) -> Session:
        """This session for an organization that works on another problem in the place of a forked agent.

        That agent becomes its root: it gets the role of the first agent that the organization makes, and the model if
        that has one. What holds for a forked agent holds for the organization: its budget, its deadline, its end.
        """
        assert agent.organizes and agent.ready, f"no organization works in the place of {agent.id}"
        view = copy(self)
        view.problem, view.root, view._place_of, view.so_far = problem, None, agent, lambda: None
        agent.so_far = lambda: view.so_far()
        return view

    def _new(
        self,
        role: str,
        messages: tuple[Message, ...],
        backing: Backing | None,
        limit: int | None = None,
        tools: Tools = (),
        seed: int | None = None,
        trace: Trace | None = None,
        spans: tuple[Span, ...] = (),
    ) -> Agent:
        salt, common = f"{self.problem.id}|{self.sample}", (self._account, self.clock, self._watch)
        agent = Agent(role, messages, backing, *common, salt, limit, tools, self._place, seed, trace, spans)
        agent.long_prompts = self._long_prompts
        if self.root is None:
            agent = self.root = self._first(agent)
        return agent

    def _first(self, agent: Agent) -> Agent:
        """The root that is like an agent: that agent, or the one in whose place the organization works."""
        root = self._place_of
        if root is None:
            self.agents.append(agent)
            tell_waits(agent.waited)  # the task that makes the root is the one that acts for it
            if not agent.is_code:
                self._free = asyncio.Semaphore(self.capacity - 1)
                self._placed.add(agent)
            agent.over = self._over
            agent.started()
            return agent
        if not agent.is_code:
            root.account = root.account.inherit()
            root.become(agent)
        root.role = agent.role
        return root

    def fork(
        self,
        parent: Agent,
        key: str,
        child: Agent,
        work: Work,
        budget: Mapping[str, float] | None = None,
        seconds: float | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Start the `work` of `child` while its parent continues, which may join it by the key. The key must be free.

        Its budget is what is left of the parent's, or `budget` within that: amounts of tokens, turns, cost and forks.
        BudgetExhausted if the budget forbids the fork, or leaves a child that decodes no tokens or turns. Its deadline
        is `seconds` from its start, or that of the limits. An approver sees `arguments`, or else the child's prompt.
        """
        root = self.agents[:1]
        assert parent.parent or parent in root, f"{parent.id} is neither the root nor forked"
        assert child.parent is None and child not in root, f"{child.id} is the root or already forked"
        assert key not in self._forks[parent.id], f"{parent.id} has not joined {key} yet"
        account = parent.account.inherit(**budget or {}, deeper=not child.is_code)
        account.require_left("cost", *(() if child.is_code else ("tokens", "turns")))
        account.require("forks")
        if self.limits.forks is None and len(self.agents) > FORKS:
            raise BudgetExhausted("forks", FORKS, FORKS)
        name = f"{parent.id}/{key}"
        self._names[name] += 1
        child.id = name if self._names[name] == 1 else f"{name}#{self._names[name]}"
        child.parent, child.account, child.over = parent.id, account, parent.over
        parent.edges.append(Edge(EdgeKind.FORK, key, child.id, parent.steps))
        self.agents.append(child)
        self._watch("fork", parent, key)
        task = self._tasks.create_task(self._begin(child, work, seconds, arguments))
        self._forks[parent.id][key] = _Fork(child, task)

    def ready(self, parent: Agent) -> list[str]:
        """Keys of the forks of an agent that are over and not joined yet."""
        return [key for key, fork in self._forks[parent.id].items() if fork.task.done()]

    async def join(self, parent: Agent, key: str) -> Result:
        """Wait for a fork and take what it returned. The key is free afterwards; KeyError if it was."""
        fork = self._forks[parent.id][key]
        if not fork.task.done() and (parent.parent is not None or self.capacity == 1):
            # Its own forks cannot starve: it gives up its place until it decodes again. The root keeps its place, for
            # no other worker may delay it, unless there is but one.
            self._leave(parent)
        await asyncio.wait({fork.task})
        del self._forks[parent.id][key]
        parent.edges.append(Edge(EdgeKind.JOIN, key, fork.child.id, parent.steps))
        self._watch("join", parent, key)
        return fork.child.result or Result("", Status.CANCELLED)

    async def call(
        self,
        parent: Agent,
        key: str,
        child: Agent,
        work: Work,
        budget: Mapping[str, float] | None = None,
        seconds: float | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Result:
        """Fork and join at once."""
        self.fork(parent, key, child, work, budget, seconds, arguments)
        return await self.join(parent, key)

    @contextmanager
    def until_spent(self, parent: Agent) -> Iterator[None]:
        """Around a parent's forks: a spent budget ends what is within, and its trace says so. What was found stands."""
        try:
            yield
        except BudgetExhausted as error:
            parent.stop = StopReason.BUDGET
            parent.failed(error)

    async def sparing(
        self, root: Agent, share: float, amounts: Mapping[str, float], work: Coroutine[Any, Any, T]
    ) -> T | None:
        """Do the root's work in all but a reserve of its budget, which it may use afterwards.

        The reserve is the amounts in `amounts`, and a share of the tokens and the seconds. When the other seconds are
        over, the work and its forks end, and the result is `None`.
        """
        whole = root.account
        reserved = {**amounts, "tokens": ceil(share * whole.left("tokens")) if whole.left("tokens") < inf else 0}
        root.account = whole.inherit(
            deeper=False,
            **{name: max(0, whole.left(name) - each) for name, each in reserved.items() if whole.left(name) < inf},
        )
        seconds = root.over - asyncio.get_running_loop().time()
        try:
            return await within(None if seconds == inf else max(0.0, seconds * (1 - share)), self.limits.grace, work)
        except DeadlineMissed:
            root.stop, root.cancel = StopReason.DEADLINE, CancelSource.LIMIT
            return None
        finally:
            await root.rest()
            await self._end(self._below(root), CancelSource.PARENT)
            root.account = whole

    async def cancel(self, parent: Agent, key: str, source: CancelSource = CancelSource.PARENT) -> None:
        """End a fork before it is done; joining it then gives an empty result with status CANCELLED."""
        fork = self._forks[parent.id][key]
        await self._end([fork, *self._below(fork.child)], source)

    def fault(self, agent: Agent, kind: FormatError, detail: str = "") -> None:
        """Record a format error."""
        agent.faults.append(FormatFault(kind, agent.id, agent.steps, detail))
        self._faulty.append(agent)

    def unanswered(self, agent: Agent) -> None:
        """Record that an agent ended without the answer that was asked of it."""
        self.fault(agent, FormatError.TRUNCATED if agent.truncated else FormatError.NO_ANSWER)

    @property
    def faults(self) -> tuple[FormatFault, ...]:
        """Format errors so far, in order of time."""
        each = {agent: iter(agent.faults) for agent in self._faulty}
        return tuple(next(each[agent]) for agent in self._faulty)

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the root's work. When it ends, all agents that are still at work end with it."""
        async with self._tasks:
            lead = asyncio.ensure_future(_bounded(work, lambda: self.agents[:1]))
            source = CancelSource.PARENT
            try:
                await asyncio.wait({lead})
            except asyncio.CancelledError:
                ended = self._operator is not None and self._operator.cancelling()
                source = CancelSource.OPERATOR if ended else CancelSource.LIMIT
                for root in self.agents[:1]:
                    root.cancel = root.cancel or source
                raise
            finally:
                await self._end([fork for root in self.agents[:1] for fork in self._below(root)], source, lead)
        return lead.result()

    def _below(self, parent: Agent) -> list[_Fork]:
        """The forks of an agent that are not joined yet, and their forks."""
        forks = list(self._forks[parent.id].values())
        return forks + [below for fork in forks for below in self._below(fork.child)]

    async def _end(self, forks: list[_Fork], source: CancelSource, *others: asyncio.Task[Any]) -> None:
        """End forks that are still at work, and other tasks, all at once."""
        for fork in forks:
            if not fork.task.done():
                fork.child.cancel = fork.child.cancel or source
        await end([*others, *(fork.task for fork in forks)], self.limits.grace)

    async def _begin(
        self, child: Agent, work: Work, seconds: float | None, arguments: Mapping[str, Any] | None
    ) -> None:
        """Do the work of a fork in a place of the pool, if an approver allows it, and turn its end into a result.

        Its own forks end with it.
        """
        tell_waits(child.waited)
        try:
            if self._approve is not None and not await allowed(self._approve, child, arguments, self.limits):
                return
            await self._place(child)
            child.started()
            seconds = self.limits.agent_seconds if seconds is None else seconds
            child.over = child.over if seconds is None else min(child.over, asyncio.get_running_loop().time() + seconds)
            child.ended(
                StopReason.DONE,
                await within(seconds, self.limits.grace, _bounded(partial(work, child), lambda: [child])),
            )
        except DeadlineMissed:
            child.cancel = CancelSource.LIMIT
            child.ended(StopReason.DEADLINE, child.so_far())
        except BudgetExhausted as error:
            child.failed(error)
            child.ended(StopReason.BUDGET, child.so_far())
        except Failure as error:
            child.failed(error)
            self._gone += [child.error] if isinstance(error, EngineUnavailable) else []
            child.ended(StopReason.ERROR)
        except asyncio.CancelledError:
            child.cancel = child.cancel or CancelSource.SYSTEM
            child.ended(StopReason.CANCELLED)
            raise
        finally:
            self._leave(child)
            await self._end(self._below(child), CancelSource.PARENT)

    async def _place(self, agent: Agent) -> None:
        """Wait for a place in the pool, unless it has one; code and tools need none."""
        if not agent.is_code and agent not in self._placed:
            await self._free.acquire()
            self._placed.add(agent)

    def _leave(self, agent: Agent) -> None:
        if agent in self._placed:
            self._placed.remove(agent)
            self._free.release()


async def _bounded(work: Callable[[], Awaitable[T]], agents: Callable[[], list[Agent]]) -> T:
    """The result of an organization's work; its agents then rest."""
    try:
        return await work()
    except SystemExit as error:  # it would end the event loop
        raise RuntimeError(f"sys.exit({error.code!r}) was called") from error
    finally:
        for agent in agents():
            await agent.rest()
