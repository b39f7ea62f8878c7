"""Puppeteer (Dang et al., 2025; the serial baseline of ParaManager): a small trained policy pulls the strings.

    state → action = a tool with a model, or stop → its result joins the state → … → the vote over the answers

The state is in `puppet_policy.py`, the training in `orgthink_arena.searches.puppeteer`. In the paper
the policy reads the hidden state of a reward model with 70 billion parameters, an agent reads all that others found,
and a last agent sums up; here the state is made of words, agents have the prompts of ParaManager's suite, which show
the history to the reviewer only, and the answers vote. A tool that takes other arguments than a subtask or a query
cannot be an action: the policy writes no text.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from orgthink.grammar.toolcall import CallStatus, Response, ToolCall, cut_middle, render_responses
from orgthink.organizations.prompts import prompt
from orgthink.organizations.tool_rounds import Rounds
from orgthink.record.episode import Message, Problem
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tasks.vote import all_prepared, vote
from orgthink.tools.agents import REASONER, ROLES, SAMPLES, answers_of
from orgthink.tools.faults import Faults
from orgthink.tools.tool import Desk, Tool
from orgthink.tools.toolbox import ENSEMBLE, TOOLS, Suite, resources, toolbox
from orgthink.util.errors import UserError, require_above_zero, require_at_least
from orgthink_arena.organizations.puppet_policy import STOP, PastAction, PuppetPolicy, Vector, features, load, uniform

Decided = Callable[[Vector, int], None]
"""Called with each state and the action that was drawn there."""
AGENTS = tuple(tool for tool in TOOLS if tool not in ("search", "python"))
policy_of = cache(load)


@dataclass(frozen=True)
class Puppeteer(Organization):
    """A trained policy chooses step by step which model works with which tool, and when to stop."""

    prompts: str = "paper"
    """Prompt style."""
    pool: Mapping[str, str] = field(default_factory=dict)
    """Members, each the name of an engine, with a description that is not read; none: the model of all."""
    tools: tuple[str, ...] = AGENTS
    """Which of the suite, and others by name or reference."""
    suite: Suite = field(default_factory=Suite)
    """What they work with."""
    policy: str | None = field(default=None, metadata={"installed": lambda file: file is None})
    """File that a `puppeteer` job wrote; without it every action is as likely."""
    width: int = 1
    """Actions that a step takes at most, side by side."""
    threshold: float = 0.2
    """In addition to the drawn action a step takes others of at least this probability."""
    steps: int = 4
    """Steps at most."""
    temperature: float = 1.0
    """0: the most probable action is taken; otherwise an action is drawn from the probabilities."""
    call_seconds: float | None = None
    """Deadline of an action; `None`: as long as its tokens may take."""
    response_tokens: int = 4096
    """Characters of a result that a reviewer reads: three for each of these tokens."""
    name: str = "puppeteer"

    def __post_init__(self) -> None:
        require_at_least(1, self, "width", "steps", "response_tokens")
        require_at_least(0, self, "temperature", "threshold")
        require_above_zero(self, "call_seconds")
        for template in dict.fromkeys(ROLES[tool] for tool in self.tools if tool in ROLES):
            prompt(self.prompts, template, Problem("", "", ""))

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(self.pool) or tuple(dict.fromkeys(ROLES[tool] for tool in self.tools if tool in ROLES))

    @property
    def max_parallel_calls(self) -> int:
        """Agents that a step may call at once."""
        return self.width

    def identical_agents(self, capacity: int) -> dict[str, int]:
        """Thinkers of an ensemble, by role."""
        return {next(iter(self.pool), REASONER): SAMPLES} if ENSEMBLE in self.tools else {}

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the actions: TOOL:MEMBER, or TOOL alone if it has no choice of a model; `stop` last."""
        return (*(f"{tool}:{member}" if member else tool for tool, member in self._choices), STOP)

    @property
    def _choices(self) -> list[tuple[str, str]]:
        asking = {tool for tool in ROLES if tool != ENSEMBLE}
        return [(tool, name) for tool in self.tools for name in (tuple(self.pool) if tool in asking else ()) or ("",)]

    @property
    def trained(self) -> PuppetPolicy:
        """The policy of the file, or one that has learned nothing. UserError if it is one of other actions."""
        if self.policy is None:
            return uniform(self.actions)
        policy = policy_of(Path(self.policy))
        if policy.actions != self.actions:
            raise UserError(f"{self.policy} was trained for the actions {', '.join(policy.actions)}")
        return policy

    def resources(self) -> tuple[Tool, Tool]:
        """What runs programs, and what searches."""
        return resources(self.suite, self.tools)

    async def run(self, problem: Problem, session: Session) -> str | None:
        drawn = "" if session.seed is None else f"|{session.seed}"
        seed = f"{problem.id}|{session.sample}{drawn}"
        return await self.play(problem, session, self.trained, seed, lambda *_: None)

    async def play(
        self, problem: Problem, session: Session, policy: PuppetPolicy, seed: str, decided: Decided
    ) -> str | None:
        """One episode with a policy. `decided` is told every decision, as training needs it."""
        root, rng = session.controller(), random.Random(seed)
        root.spend(0.0)  # known, and nothing if the first action is to stop
        tools = toolbox(self.tools, tuple(self.pool), *self.resources(), brief=True)
        events, answers, responded = list[PastAction](), list[str](), list[Response]()
        show = partial(self._prompt, responded)
        desk = Desk(session, problem, show, {name: name for name in self.pool})
        cut = partial(cut_middle, characters=3 * self.response_tokens)
        rounds = Rounds(root, tools, desk, self.width, self.call_seconds, cut, Faults(), others=())
        session.so_far = lambda: vote(problem, answers[::-1])
        for step in range(1, self.steps + 1):
            state = features(problem.text, events, len(policy.actions), self.steps)
            taken = self._taken(policy.probabilities(state), rng)
            decided(state, taken[0])
            if policy.actions[taken[0]] == STOP:
                break
            calls = [_call(tools, *self._choices[action], problem) for action in taken]
            await rounds.send(step, calls)
            responses = await rounds.collect()
            responded += responses
            for action, response in zip(taken, responses, strict=True):
                events.append(PastAction(step, action, response.status is CallStatus.OK, response.value))
            answers += await all_prepared(problem, answers_of(responses))
            if root.account.exhausted("tokens", "turns", "cost", "forks"):
                break
        return vote(problem, answers[::-1])  # of equals the latest

    def _taken(self, probabilities: Any, rng: random.Random) -> list[int]:
        """The drawn action, and up to `width` − 1 others that are probable enough, but for `stop`."""
        if self.temperature:
            sharpened = (probabilities / probabilities.max()) ** (1 / self.temperature)  # the largest is never lost
            drawn = rng.choices(range(len(probabilities)), sharpened)[0]
        else:
            drawn = int(np.argmax(probabilities))
        others = [int(i) for i in np.argsort(-probabilities) if i != drawn and i != len(probabilities) - 1]
        return [drawn, *[i for i in others if probabilities[i] >= self.threshold][: self.width - 1]]

    def _prompt(
        self, responded: list[Response], template: str, problem: Problem, share: float = 1.0
    ) -> tuple[Message, ...]:
        whole, found = render_responses(responded), [one.value for one in responded if one.status is CallStatus.OK]
        shows = {"history": cut_middle(whole, int(share * len(whole))), "answers": " ; ".join(found)}
        shows["packages"] = self.suite.packages
        return prompt(self.prompts, template, problem, problem=problem.text, **shows)


def _call(tools: Mapping[str, Tool], tool: str, member: str, problem: Problem) -> ToolCall:
    """The call of an action: the whole problem with a member's model, or as a query."""
    known = tools[tool].parameters.schema.get("properties", {})
    if "query_list" in known:
        return ToolCall(tool, {"query_list": [problem.text]})
    return ToolCall(tool, {"model_id": member} if member else {})
