"""Options that several verbs share: whose tokens, how many, and how the organizations are set."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from orgthink.engines import EngineSpec, engine_spec
from orgthink.episode import Sampling
from orgthink.errors import UserError, pick, user_input
from orgthink.organizations import ORGANIZATIONS, organization_named
from orgthink.organizations.prompts import STYLES
from orgthink.runtime.attempt import Organization
from orgthink.runtime.budget import Budget
from orgthink.runtime.session import Limits


@dataclass(frozen=True, kw_only=True)
class Options:
    """Whose tokens, how many, and how the organizations are set."""

    model: str | None = None
    """`pocket` (shipped), a model folder, `vllm:` and one of these, or a server's name for a model; without it
    `pocket`, or the only model of the server."""
    url: str | None = None
    """Base URL of an OpenAI-compatible server; without it OPENAI_BASE_URL serves models that do not lie here.
    OPENAI_API_KEY is sent along."""
    tokenizer: str | None = None
    """Model folder whose tokenizer lets token ids go to the server and come back."""
    capacity: int = 2
    """c: agents that may be at work at once, the organizer included."""
    max_tokens: int = 512
    """Tokens that each agent may sample."""
    renew: bool = False
    """The budget is renewed at each Join, as in the paper."""
    temperature: float = 0.0
    """0 is greedy."""
    seed: int = 0
    """Of the problems and of the sampling."""
    prompts: str | None = None
    """Prompt style, `paper` or `pocket`; without it the style that the model was made for."""
    tolerant: bool = False
    """After a format error go on with a notice, for models that were not trained for it."""
    overflow: Literal["error", "queue"] = "error"
    """A Fork beyond the capacity: a format error, or it waits for a place."""
    depth: int = 1
    """Levels of forks: 2 lets workers have workers."""
    deadline: float | None = None
    """Seconds after which an episode is ended."""

    def spec(self) -> EngineSpec:
        return engine_spec(self.model, self.url, self.tokenizer)

    def sampling(self) -> Sampling:
        if self.max_tokens < 1:
            raise UserError(f"the budget is {self.max_tokens} tokens: an agent needs at least 1")
        if self.temperature < 0:
            raise UserError(f"temperature is {self.temperature}: it cannot be negative")
        return Sampling(self.max_tokens, self.temperature, seed=self.seed)

    def limits(self) -> Limits:
        with user_input():
            tokens = None if self.renew else self.max_tokens
            return Limits(self.capacity, Budget(depth=self.depth), tokens, self.deadline)

    def organize(self, name: str, spec: EngineSpec) -> Organization:
        """The organization of that name, as these options set it."""
        known = {field.name for field in fields(pick("organization", name, ORGANIZATIONS))}
        style = self.prompts or spec.prompts
        pick("prompt style", style, dict.fromkeys(STYLES))
        given = {"prompts": style, "tolerant": self.tolerant, "overflow": self.overflow}
        return organization_named(name, **{key: value for key, value in given.items() if key in known})
