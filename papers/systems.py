"""The systems that are compared for each paper, as data: one row of a table each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orgthink_pocket.base.rehearsals import USING
from orgthink_pocket.recipes import AGENT_TOKENS, MANAGED, MARSRL, MEMBERS, PARAMANAGER

from orgthink.evaluation.specs import RoleSpec

SEEDS = (0, 1, 2)
"""Seeds of the trainings, and of the sampling."""
TEMPERATURES = (0.3, 0.7, 1.0)
"""Each row has the one with the most solved development problems."""


@dataclass(frozen=True, slots=True)
class Training:
    """A model that is trained once for each seed."""

    recipe: str
    """Recipe of the pocket package."""
    after: str | None = None
    """Training whose result it starts from; `None`: the recipe's own model."""
    shared: bool = False
    """Whether one training, with seed 0, serves all seeds."""


TRAININGS = {
    "organizer": Training("asyncthink-pocket"),
    "thinker": Training("asyncthink-pocket-sequential"),
    "reviewer": Training("marsrl-pocket"),
    "manager-sft": Training("paramanager-pocket-sft", shared=True),
    "manager": Training("paramanager-pocket", after="manager-sft"),
}


@dataclass(frozen=True, slots=True)
class System:
    """One row of a table."""

    organization: str
    """Name of the organization."""
    model: str = "pocket-base"
    """A shipped model, or a name of `TRAININGS`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the organization."""
    temperatures: tuple[float, ...] = TEMPERATURES
    """Temperatures to choose from."""
    max_tokens: int | None = None
    """Tokens of an agent where they are not those of the paper's other rows."""


@dataclass(frozen=True, slots=True)
class Paper:
    """The comparison for one paper."""

    task: str
    """Name of the task; `TASK@0/2` of `train` are the development problems, `TASK@1/2` the training problems."""
    systems: Mapping[str, System]
    """The rows by label."""
    max_tokens: int
    """Tokens that an agent may sample."""
    capacity: int
    """Agents that may decode at once."""
    n: int = 100
    """Held-out problems."""
    roles: Mapping[str, RoleSpec] = field(default_factory=dict)
    """Members of a manager's pool."""
    renew: bool = False
    """Whether the budget is that of a reply."""


_LOOP = {"passes": 1, "rounds": 4, "attempts": 1}
_MANAGING = {**PARAMANAGER.settings.rollout.organization.settings, "faults": {"rate": 0.0}}
VOTES = 4
"""Solvers of the vote next to MarsRL: enough that it samples no fewer tokens than the system."""

PAPERS = {
    "asyncthink": Paper(
        "countdown-mini",
        {
            "one-thinker": System("sequential"),
            "one-thinker-after": System("sequential", "thinker"),
            "vote-of-four": System("parallel"),
            "asyncthink-before": System("asyncthink", settings={"malformed": "error"}),
            "asyncthink-after": System("asyncthink", "organizer", {"malformed": "error"}),
        },
        max_tokens=AGENT_TOKENS,
        capacity=4,
    ),
    "marsrl": Paper(
        "sudoku-sparse",
        {
            "solver-before": System("sequential"),
            "solver-after": System("sequential", "reviewer"),
            "vote-before": System("majority-vote", settings={"samples": VOTES}),
            "vote-after": System("majority-vote", "reviewer", {"samples": VOTES}),
            "system-before": System("verifier-corrector", settings=_LOOP),
            "system-after": System("verifier-corrector", "reviewer", _LOOP),
        },
        max_tokens=MARSRL.settings.rollout.max_tokens,
        capacity=VOTES,
    ),
    "paramanager": Paper(
        MANAGED,
        {
            **{
                f"member-{name}": System(
                    "sequential", temperatures=(role.sampling.temperature,), max_tokens=role.sampling.max_tokens
                )
                for name, role in MEMBERS.items()
                if name != "silent"
            },
            "tool-use": System("tool-use", settings=USING),
            "manager-sft": System("paramanager", "manager-sft", _MANAGING),
            "manager-after": System("paramanager", "manager", _MANAGING),
        },
        max_tokens=256,
        capacity=9,
        roles=MEMBERS,
        renew=True,
    ),
}
