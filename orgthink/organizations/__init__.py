"""Organizations, by name. A new one is one file, here or in another package.

`prompt` and `think` are what an agent of `sequential` reads and does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from inspect import iscoroutinefunction
from typing import Annotated, Any

from orgthink.organizations.prompts import prompt
from orgthink.organizations.sequential import think
from orgthink.record.episode import Problem
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.util.errors import UserError
from orgthink.util.registry import Registry, made, settings_class
from orgthink.util.settings import ByKind


def organization_class(found: Any) -> type[Organization] | None:
    """The dataclass of an organization, whose fields are its settings; `None` for anything else.

    The object is a class with a method `run`, an instance, a factory, or `async def run(problem, session)`.
    """
    if iscoroutinefunction(found):
        return _class_of_function(found)
    cls: Any = settings_class(found)
    one = made(found) if cls is None else cls
    cls = one if isinstance(one, type) else type(one)
    if not hasattr(cls, "run"):
        return None
    if cls is one and not is_dataclass(cls):
        raise UserError(f"{cls.__name__} needs arguments: name an instance, or make them fields of a dataclass")
    values = {} if cls is one else dict(getattr(one, "__dict__", {}))
    if values or not issubclass(cls, Organization):
        own = {"__post_init__": lambda self: vars(self).update(values)} if values else {}  # they are no fields
        cls = type(cls.__name__, (cls, Organization), {"__module__": cls.__module__, "__doc__": cls.__doc__, **own})
    found_class: type[Organization] = cls
    return found_class if is_dataclass(cls) else dataclass(eq=False)(found_class)


def _class_of_function(function: Any) -> type[Organization]:
    @dataclass(frozen=True)
    class FunctionOrganization(Organization):
        async def run(self, problem: Problem, session: Session) -> str | None:
            return await function(problem, session)

    FunctionOrganization.__name__ = function.__name__
    return FunctionOrganization


__all__ = ["ORGANIZATIONS", "AnyOrganization", "identical_below", "most", "organization_class", "prompt", "think"]

ORGANIZATIONS: Registry[type[Organization]] = Registry(
    "organization",
    "orgthink.organizations",
    {
        "sequential": "orgthink.organizations.sequential:Sequential",
        "parallel": "orgthink.organizations.votes:Parallel",
        "asyncthink": "orgthink.organizations.asyncthink:AsyncThink",
        "verifier-corrector": "orgthink.organizations.verifier_corrector:VerifierCorrector",
        "majority-vote": "orgthink.organizations.votes:MajorityVote",
        "self-refine": "orgthink.organizations.self_refine:SelfRefine",
        "paramanager": "orgthink.organizations.paramanager:ParaManager",
        "tool-use": "orgthink.organizations.paramanager:ToolUse",
    },
    "an Organization, a class with a method run, or an async function of a problem and a session",
    organization_class,
)
"""Organizations by name."""

AnyOrganization = Annotated[Organization, ByKind(ORGANIZATIONS, Organization)]


def identical_below(organizations: Iterable[Organization], capacity: int) -> dict[str, int]:
    """How many agents of organizations below get the same prompt, by role."""
    return most(one.identical_agents(capacity) for one in organizations)


def most(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The largest count of each role: one that is alone in one place may vote with others in another."""
    found: dict[str, int] = {}
    for role, count in (item for each in counts for item in each.items()):
        found[role] = max(count, found.get(role, 0))
    return found
