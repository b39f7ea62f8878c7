"""AsyncThink (section 2): an organizer forks sub-queries to workers and joins their results as it thinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from orgthink.engines.engine import Tools
from orgthink.grammar.actions import Answer, Cancel, Command, Deliver, Fork, Join, Malformed, Poll, Return, Tell
from orgthink.grammar.asyncthink import DIALECT, Dialect, Keys, organizer_scanner, worker_scanner
from orgthink.grammar.fork_calls import CALL_NAMES, ForkCalls
from orgthink.organizations import AnyOrganization, identical_below
from orgthink.organizations.agent_forms import CallForm, Form, TagForm, WorkerTools
from orgthink.organizations.pool import Pool
from orgthink.organizations.prompts import prompt, style_named
from orgthink.organizations.request import unmarked_answer
from orgthink.organizations.team import Team
from orgthink.record.episode import FormatError, Message, Problem, StopReason
from orgthink.runtime.agent import Agent, Result
from orgthink.runtime.budget import BudgetExhausted
from orgthink.runtime.organization import Organization, fork_organization
from orgthink.runtime.session import Session
from orgthink.tools.tool import Tool
from orgthink.tools.toolbox import descriptions, listed
from orgthink.util.errors import require_at_least

_WORKER_TURNS = {"inherit": ("inherited", "delegate", "alone"), "persistent": ("follow_up",)}
"""Templates of what workers are told by setting."""


LONGEST_CONTEXT = 400
"""Most spans of a worker that gets a follow-up, two for each one before: the record of the next agent repeats them."""


@dataclass(frozen=True)
class AsyncThink(Organization):
    """An organizer forks sub-queries to workers and joins their results while it thinks (AsyncThink).

    It decodes on after a Fork, and pauses at a Join only until that worker has returned.
    """

    prompts: str = "paper"
    """Prompt style."""
    tolerant: bool = False
    """After a format error, or a Fork that the budget forbids, go on with a notice, and take a last text that marks no
    answer, for untrained models; else the episode ends, as in training."""
    overflow: Literal["error", "queue"] = "error"
    """A Fork beyond c - 1 workers: a format error, or it waits for a place."""
    malformed: Literal["record", "error"] = "record"
    """Text that has a tag but is no action, such as a thought about `<FORK-1>`, or an invalid call: it is recorded,
    or it is a format error."""
    worker_context: Literal["instruction", "question", "inherit"] = "instruction"
    """Context of a worker's sub-query: the task's instruction; the whole question but for the form of its answer; or
    `inherit`, all that the agent that forks it has read and sampled up to the end of the Fork."""
    delivery: Literal["join", "push"] = "join"
    """When a result arrives: at its Join; or `push`, also without a Join, before the next token after it is there (by
    calls, with the next responses)."""
    workers: Literal["once", "persistent"] = "once"
    """Whether a worker that was joined is over; or it is `persistent`: a Tell gives it another sub-query, on which it
    works with the context that it has."""
    budget: Literal["call", "status", "join"] = "call"
    """When agents that fork learn what is left of their tokens, workers and seconds: at each `call` of status;
    `status`, with tags too, where they write `<STATUS>`; `join`, also in the organizer's prompt and at each result."""
    path_price: float = 0.0
    """Points that 1,000 decoding steps on the critical path cost, as the organizer's prompt says. `reward.kind=priced`
    takes as many off."""
    token_price: float = 0.0
    """The same for 1,000 sampled tokens of all agents. Where both are 0, the prompt mentions neither."""
    dialect: Dialect = DIALECT
    """Spelling of the tags."""
    protocol: Literal["tags", "tools", "auto"] = "tags"
    """How agents organize: by tags in their text, or by calls of the tools fork, join, cancel and status. `auto`: by
    calls where the engine offers tools natively."""
    call_names: Literal["fork", "spawn_agent"] = "fork"
    """Names of those calls; `spawn_agent`: the names of coding agents, which current models know."""
    worker_tools: WorkerTools = field(default_factory=WorkerTools, metadata={"runs commands": True})
    """Tools of workers. Workers with tools use calls, whatever the protocol is."""
    worker: AnyOrganization | None = field(default=None, metadata={"runs commands": True})
    """Organization that works in the place of each worker, with settings of its own; `None`: a worker is an agent."""
    pool: Mapping[str, str] = field(default_factory=dict)
    """Models that a Fork may name, the default first: the name of an engine, and its description for the organizer."""
    organizations: Mapping[str, AnyOrganization] = field(default_factory=dict, metadata={"runs commands": True})
    """Organizations that a Fork may name as well."""
    prices: Mapping[str, float] = field(default_factory=dict)
    """Cost units of each Fork to a member of the pool, 1 by default; for an organization 0 besides what its agents
    cost."""
    name: str = "asyncthink"

    def __post_init__(self) -> None:
        require_at_least(0, self, "path_price", "token_price")
        self.worker_tools.require_other(self._offered.names)
        if self.worker is not None and self._pool:
            raise ValueError("worker is the only worker, and a Fork names members of a pool: leave one of them out")
        if self.worker is not None and self.worker_tools:
            raise ValueError(f"a worker is the organization {self.worker.name}: it has tools by its own settings only")
        if self._inherits and (self._below or self.worker_tools):
            raise ValueError(
                "worker_context=inherit is for workers that are agents without tools: leave out worker, organizations "
                "and worker_tools"
            )
        if self._persistent and self._below:
            raise ValueError("workers=persistent is for workers that are agents: leave out worker and organizations")
        by_calls = () if self.protocol == "tags" else ("organizer_tools",)
        calling = ("worker_tools", "forking", "using", "calling") if by_calls or self.worker_tools else ()
        beyond = (template for name in self._extensions for template in (name, *_WORKER_TURNS.get(name, ())))
        for template in (*by_calls, *calling, *beyond):
            prompt(self.prompts, template, Problem("", "", ""))

    @property
    def _inherits(self) -> bool:
        return self.worker_context == "inherit"

    @property
    def _persistent(self) -> bool:
        return self.workers == "persistent"

    @property
    def _extensions(self) -> tuple[str, ...]:
        """Settings beyond the paper that are on: templates that describe them to agents that fork."""
        on = {"inherit": self._inherits, "push": self.delivery == "push", "persistent": self._persistent}
        on |= {"pool": bool(self._pool), "asking": self.budget != "call", "left": self.budget == "join"}
        on["points"] = self.path_price > 0 or self.token_price > 0
        return tuple(name for name, is_on in on.items() if is_on)

    @property
    def _pool(self) -> Pool:
        return Pool(self.pool, self.organizations, self.prices)

    @property
    def _offered(self) -> ForkCalls:
        return ForkCalls(CALL_NAMES[self.call_names], self._persistent, self._pool.names)

    @property
    def _below(self) -> tuple[Organization, ...]:
        """Organizations that work in the place of workers."""
        return (*(() if self.worker is None else (self.worker,)), *self.organizations.values())

    @property
    def roles(self) -> tuple[str, ...]:
        """A member of the pool is a role. Without a pool the workers have one."""
        agents = self.pool or (() if self._below else ("worker",))
        return tuple(dict.fromkeys(("organizer", *agents, *(role for one in self._below for role in one.roles))))

    def identical_agents(self, capacity: int) -> dict[str, int]:
        """Agents of the organizations that work in the place of workers."""
        return identical_below(self._below, capacity)

    @property
    def least_depth(self) -> int:
        """Levels of forks below the organizer."""
        return 1 + max((one.least_depth for one in self._below), default=0)

    @property
    def least_capacity(self) -> int:
        """Below it every Fork is a format error that ends the episode."""
        return 1 if self.tolerant or self.overflow == "queue" else 2

    async def run(self, problem: Problem, session: Session) -> str | None:
        work = _Organized(self, problem, session, await self.worker_tools.opened(self._offered.names))
        organizer = work.agent("organizer", forks=True)
        if self.budget == "join":
            work.tell_budget(organizer)
        if self._pool:
            organizer.pay(0.0)  # it has no price: it goes on where none of the cost is left
        answer = await work.done(organizer)
        if isinstance(answer, str) and answer.strip():
            return answer
        if organizer.stop is not StopReason.FORMAT:
            session.unanswered(organizer)
        lenient = self.tolerant and answer is None  # an empty answer does not count
        return unmarked_answer(organizer, self.dialect) if lenient else None


@dataclass(frozen=True, slots=True)
class _Organized:
    """One episode of an organizer."""

    settings: AsyncThink
    problem: Problem
    session: Session
    tools: Mapping[str, Tool]
    """Tools of workers."""
    teams: dict[Agent, Team] = field(default_factory=dict)
    """Of agents that may fork."""

    async def done(self, agent: Agent) -> Result | str | None:
        """Execute the commands of an agent until it answers or returns.

        A worker's malformed tags are text: the format errors of section 3.2 are those of organizers.
        """
        settings, team = self.settings, self.teams.setdefault(agent, self._new_team())
        form, keys = self._form(agent, team), team.keys
        async for command in form.commands(lambda: self._due(agent, keys)):
            if isinstance(command, Malformed) and agent is not self.session.root:
                continue
            fault = keys.check(command)
            if fault is not None:
                detail = command.text[:80] if isinstance(command, Malformed) else getattr(command, "key", "")
                self.session.fault(agent, fault, detail)
                if isinstance(command, Malformed) and settings.malformed == "record":
                    continue
                if not settings.tolerant:
                    agent.stop = StopReason.FORMAT
                    return None
                await form.refuse(command, self._reason(command, fault))
                continue
            match command:
                case Fork() | Tell():
                    await self._start(agent, command, form, team)
                case Join(key):
                    await form.join(key)
                case Deliver(key):
                    await form.join(key, pushed=True)
                case Cancel(key):
                    await self.session.cancel(agent, key)
                    form.done(command, "cancelled")
                case Poll():
                    form.done(command, f"{team.progress}\nleft: {team.left(agent)}")
                case Answer(text) | Return(text):
                    return text.strip()
        return form.ending(self.problem)

    def _reason(self, command: Command, fault: FormatError) -> str:
        """Why a command is refused; the kind of error where that is all."""
        if not isinstance(command, Fork) or fault is not FormatError.UNKNOWN_MODEL:
            return fault
        return f"there is no model {command.model[:64]!r}: it is one of {', '.join(self.settings._pool.names)}"

    def _due(self, agent: Agent, keys: Keys) -> Deliver | None:
        """The next result that is pushed to an agent. A cancelled worker's is not."""
        ready = self.session.ready(agent) if self.settings.delivery == "push" else ()
        return next((Deliver(key) for key in ready if key in keys.taken), None)

    async def _start(self, agent: Agent, command: Fork | Tell, form: Form, team: Team) -> None:
        """Let a worker start, unless the budget forbids it."""
        key = command.key
        try:
            match command:
                case Fork():
                    team.workers[key] = self._fork(agent, command, form)
                case Tell():
                    team.workers[key] = self._follow_up(agent, command, team)
            form.done(command, key)
        except BudgetExhausted as error:
            if not self.settings.tolerant:
                raise
            agent.failed(error)
            team.keys.taken.remove(key)
            await form.refuse(command, str(error))

    def _fork(self, parent: Agent, fork: Fork, form: Form) -> Agent:
        """Start a new worker on its sub-query. Where the budget is deep enough, it may have workers of its own."""
        query, forks, pool = fork.query.strip(), parent.account.depth > 1, self.settings._pool
        role = fork.model or next(iter(pool.names), "worker")
        organization = pool.organizations.get(role, self.settings.worker)
        if organization is not None:
            price = pool.price(role) if pool else None
            return fork_organization(self.session, parent, fork.key, organization, query, self._context, price=price)
        if not self.settings._inherits:
            return self._started(parent, fork.key, self.agent(role, forks=forks, query=query), query)
        delegating, calls = self._text("delegate" if forks else "alone"), self._calls(role)
        note = form.first_turn(self._text("inherited", calls=calls, query=query, delegating=delegating))
        if self.session.same_model(role, parent.role):
            return self._started(parent, fork.key, self.session.agent(role, (), inherits=parent), query, note)
        again = (*parent.conversation, Message("user", note))
        return self._started(parent, fork.key, self.session.agent(role, again, tools=parent.tools), query)

    def _follow_up(self, parent: Agent, tell: Tell, team: Team) -> Agent:
        """Fork the worker again: an agent that begins with all that the worker has read and sampled, and with its
        team."""
        worker, query = team.workers[tell.key], tell.query.strip()
        if (length := len(worker.inherited())) > LONGEST_CONTEXT:
            raise BudgetExhausted("spans of a worker's context", length, LONGEST_CONTEXT)
        child = self.session.agent(worker.role, (), inherits=worker)
        if worker in self.teams:
            self.teams[child] = self.teams[worker]
            self.teams[child].keys.taken.clear()  # they ended with it
        turn = self._text("follow_up", calls=self._calls(worker.role), query=query)
        return self._started(parent, tell.key, child, query, turn)

    def _new_team(self) -> Team:
        how, queue = self.settings, self.settings.overflow == "queue"
        keys = Keys(self.session.capacity, queue=queue, persistent=how._persistent, models=how._pool.names)
        return Team(keys)

    def _started(self, parent: Agent, key: str, child: Agent, query: str, turn: str = "") -> Agent:
        """Fork a worker. `turn` is the next turn in its context, where that is not a prompt of its own. A member of the
        pool is paid when it begins."""
        pool = self.settings._pool
        if pool:
            child.spend(0.0)

        async def work(worker: Agent) -> Result | str | None:
            if pool:
                worker.pay(pool.price(worker.role))
            if turn:
                worker.tell(turn, parent.id)
            return await self.done(worker)

        self.session.fork(parent, key, child, work, arguments={"query": query})
        return child

    def agent(self, role: str, *, forks: bool, **values: str) -> Agent:
        messages, tools = self._briefing(role, forks=forks, **values)
        return self.session.agent(role, messages, tools=tools)

    def tell_budget(self, organizer: Agent) -> None:
        """Tell the organizer in its prompt what it may use, which only the agent itself knows."""
        left = self._text("left", calls=self._calls("organizer"), amounts=self._new_team().left(organizer))
        organizer.reprompt(self._briefing("organizer", forks=True, left=left)[0])

    def _briefing(self, role: str, *, forks: bool, **values: str) -> tuple[tuple[Message, ...], Tools]:
        """The prompt of a new agent, and what its engine offers it. By calls one of both describes these."""
        template = "organizer" if role == "organizer" else "worker"
        instructions = self._instructions(calls=self._calls(role)) if forks else {}
        values = {"context": self._context} | instructions | values
        if not self._calls(role):
            named = f"{template}_forks" if template == "worker" and forks else template
            known = named in style_named(self.settings.prompts).templates
            return self._prompt(named if known else template, **values), ()
        native, tools = self.session.native_calls(role), self._tools(role)
        own = self.settings._offered.tools if forks else ()
        offered = (*own, *descriptions(tools))
        values["forking"] = self._prompt("forking", **values)[0].content if forks else ""
        values["using"] = self._prompt("using")[0].content if tools else ""
        if offered and not native:
            values["calling"] = self._prompt("calling", tools=listed(offered))[0].content
        return self._prompt(f"{template}_tools", **values), offered if native else ()

    def _instructions(self, *, calls: bool) -> dict[str, str]:
        """What a prompt says of the settings that are on, by the name of the template; and what a worker sees."""
        texts = {name: self._text(name, calls=calls) for name in self.settings._extensions}
        return texts | {"sight": texts.get("inherit") or self._text("isolated", calls=calls, missing="")}

    @property
    def _context(self) -> str:
        """Context of a worker, in addition to its sub-query."""
        return self.problem.statement if self.settings.worker_context == "question" else self.problem.instruction

    def _form(self, agent: Agent, team: Team) -> Form:
        """The form in which an agent gives commands."""
        organizes, settings = agent is self.session.root, self.settings
        forks = organizes or agent.account.depth > 0
        left = lambda: team.left(agent) if settings.budget == "join" else ""  # noqa: E731
        if not self._calls(agent.role):
            dialect = settings.dialect
            reads = {"tells": settings._persistent, "polls": settings.budget != "call", "models": bool(settings._pool)}
            organizing = organizer_scanner(dialect, **reads)
            scanner = organizing if organizes else worker_scanner(dialect, forks=forks, **reads)
            return TagForm(agent, self.session, scanner, dialect, left, settings.tolerant)
        tools = self._tools(agent.role)
        calls = settings._offered
        others = calls.names.calls if forks else ()
        rounds = settings.worker_tools.rounds(agent, self.session, tools, settings.prompts, others) if tools else None
        return CallForm(agent, self.session, forks, team.workers, left, calls, rounds)

    def _calls(self, role: str) -> bool:
        """Whether agents of a role give commands by calls."""
        protocol = self.settings.protocol
        native = protocol == "auto" and self.session.native_calls(role)
        return protocol == "tools" or native or bool(self._tools(role))

    def _tools(self, role: str) -> Mapping[str, Tool]:
        return {} if role == "organizer" else self.tools

    def _text(self, template: str, *, calls: bool = False, missing: str | None = None, **values: str) -> str:
        """The text of a template. For agents that make calls it is that of its form for calls, if the style has one."""
        known = style_named(self.settings.prompts).templates
        named = f"{template}_tools" if calls and f"{template}_tools" in known else template
        return missing if missing is not None and named not in known else self._prompt(named, **values)[0].content

    def _prompt(self, template: str, **values: str) -> tuple[Message, ...]:
        pool = self.settings._pool
        known = {**vars(self.settings._offered.names), "members": pool.text, "default": next(iter(pool.names), "")}
        known |= {name: f"{getattr(self.settings, name):g}" for name in ("path_price", "token_price")}
        return prompt(self.settings.prompts, template, self.problem, capacity=self.session.capacity, **known | values)
