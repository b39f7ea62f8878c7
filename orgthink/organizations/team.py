"""The workers of an agent of AsyncThink that may fork."""

from __future__ import annotations

from dataclasses import dataclass, field

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
