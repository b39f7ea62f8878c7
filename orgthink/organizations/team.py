"""The workers of an agent of AsyncThink that may fork."""

from __future__ import annotations

from asyncio import get_running_loop
from dataclasses import dataclass, field
from math import ceil, inf

from orgthink.grammar.asyncthink import Keys
from orgthink.runtime.agent import Agent


@dataclass(frozen=True, slots=True)
class Team:
    """The workers of one agent, and of the agents that go on from its context."""

    keys: Keys
    """Which keys are in use."""
    workers: dict[str, Agent] = field(default_factory=dict)
    """The last worker of each key, joined ones included."""

    @property
    def progress(self) -> str:
        """Lists which workers are done, and which may be told something."""
        keys = self.keys

        def state(key: str, worker: Agent) -> str:
            return "joined" if key not in keys.taken else "at work" if worker.result is None else "done"

        known = ((key, worker) for key, worker in self.workers.items() if key in keys.taken | keys.known)
        return "\n".join(f"{key}: {state(key, worker)}" for key, worker in known) or "no worker"

    def left(self, agent: Agent) -> str:
        """What is left of the agent's budget: tokens that it may sample, in all and before the next result; tokens of
        all agents; workers that it may fork; and seconds. What nothing limits is not named."""
        own, together, seconds = agent.tokens_left, agent.account.left("tokens"), agent.over - get_running_loop().time()
        amounts = {
            "tokens": own,
            "tokens at a time": agent.longest_reply if agent.longest_reply < own else inf,
            "tokens of all agents": together if own < together else inf,
            "workers": min(self.keys.free, agent.account.left("forks")) if agent.account.depth > 0 else 0,
            "seconds": ceil(seconds) if seconds < inf else inf,
        }
        return ", ".join(f"{name} {max(0, amount):.0f}" for name, amount in amounts.items() if amount < inf)
