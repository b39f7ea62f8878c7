"""Evaluations of an arena: who, at which cap, with which seed and which choice, on which problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from orgthink.engines import EngineSpec
from orgthink.evaluation.compatibility import require_forks
from orgthink.evaluation.plan import Evaluation
from orgthink.evaluation.specs import OrganizationSpec, RoleSpec, known_settings, organization_settings
from orgthink.record.episode import Sampling
from orgthink.runtime.budget import Limits
from orgthink.runtime.organization import Organization
from orgthink.tasks.task import Split
from orgthink.util.settings import plain
from orgthink_arena.contest.config import MODEL, NUMBERS, ROLES, Arena, Member, Method, cap_name


@dataclass(frozen=True, slots=True)
class Cap:
    """What an episode may use: of everything that all its agents sample and reply."""

    name: str
    """`uncapped`, or the multiple of the reference's mean budget, such as `2x`."""
    tokens: int | None = None
    """Sampled tokens; `None` without a limit."""
    replies: int | None = None
    """Replies of models, each of which costs 1; `None` without a limit."""

    def of(self, factor: float) -> Cap:
        """A multiple of it, rounded up, so that a cap is never below what it stands for."""
        assert self.tokens is not None and self.replies is not None
        return Cap(cap_name(factor), ceil(factor * self.tokens), ceil(factor * self.replies))


UNCAPPED = Cap("uncapped")
"""No cap."""


@dataclass(frozen=True, slots=True)
class Workload:
    """How many problems, and which."""

    task: str
    """Name of the task."""
    split: Split
    """Its part."""
    n: int
    """Number of problems."""
    samples: int
    """Attempts at each."""
    concurrency: int
    """Episodes that run at once; 1 times them."""


def table_work(arena: Arena) -> Workload:
    """The problems of the table."""
    return Workload(arena.task, arena.split, arena.n, arena.samples, arena.concurrency)


def timed_work(arena: Arena) -> Workload:
    """The first of them, one at a time."""
    return Workload(arena.task, arena.split, min(arena.n, arena.timed), 1, 1)


def development_work(arena: Arena) -> Workload:
    """The problems on which grids choose."""
    own = arena.development
    assert own is not None
    return Workload(own.task, own.split, own.n, own.samples, arena.concurrency)


def evaluation(
    arena: Arena,
    name: str,
    cap: Cap,
    seed: int,
    work: Workload,
    variant: Mapping[str, Any],
    prepared: Mapping[str, str],
) -> Evaluation:
    """The evaluation of a method. UserError for settings that it cannot have.

    `variant` is a combination of its grid; `prepared` are the results of its preparations, by setting.
    """
    given = {**variant, **prepared}
    method = _with_numbers(arena.methods[name], given)
    named = {place: str(given.pop(place)) for place in list(given) if place.startswith(f"{ROLES}.")}
    roles = method.roles | {place.partition(".")[2]: model for place, model in named.items()}
    model = str(given.pop(MODEL, method.model or arena.first))
    engine = arena.engine(model)
    spec = _organization(arena, name, method, engine, given)
    organization = spec.named(name)
    capacity = method.capacity or arena.capacity
    require_forks(organization, capacity, method.depth)
    sampling = _sampling(arena, method, seed, model)
    return Evaluation(
        task=work.task,
        organizations={name: spec},
        n=work.n,
        engine=engine,
        sampling=sampling,
        roles=_roles(arena, replace(method, roles=roles), organization, seed),
        limits=Limits(
            capacity,
            None if method.renew else sampling.max_tokens,
            cap.tokens,
            cap.replies,
            depth=method.depth,
        ),
        split=work.split,
        seed=arena.seed,
        samples=work.samples,
        concurrency=work.concurrency,
    )


def _with_numbers(method: Method, given: dict[str, Any]) -> Method:
    """The method with the numbers that its grid gives, which are taken out."""
    own = [place for place in NUMBERS if place in given and place not in known_settings(method.organization)]
    return replace(method, **{place: given.pop(place) for place in own})


def _organization(
    arena: Arena, name: str, method: Method, engine: EngineSpec, given: Mapping[str, Any]
) -> OrganizationSpec:
    """The organization with all its settings: the pool's, the shared ones, its own, then the given ones."""
    known = known_settings(method.organization)
    settings: dict[str, Any] = {}
    if "pool" in known:
        settings["pool"] = {member: arena.pool[member].description for member in _members(arena, method)}
    shared = {place: value for place, value in arena.shared.items() if place.partition(".")[0] in known}
    for place, value in {**shared, **method.settings, **given}.items():
        put(settings, place, value)
    spec = OrganizationSpec(
        method.organization, organization_settings(method.organization, engine, settings, arena.prompts)
    )
    return replace(spec, settings=plain(spec.named(name)))


def put(settings: dict[str, Any], place: str, value: Any) -> None:
    """Put a value at a path such as `suite.corpus`; its neighbours stay."""
    *above, last = place.split(".")
    for part in above:
        settings[part] = dict(settings.get(part) or {})
        settings = settings[part]
    settings[last] = value


def _members(arena: Arena, method: Method) -> tuple[str, ...]:
    return tuple(arena.pool) if method.pool is None else method.pool


def _roles(arena: Arena, method: Method, organization: Organization, seed: int) -> dict[str, RoleSpec]:
    """The members of the pool that the organization knows, and the roles that the method names."""
    named = {member: member for member in _members(arena, method) if member in organization.roles}
    return {role: _role(arena, method, model, seed) for role, model in {**named, **method.roles}.items()}


def _role(arena: Arena, method: Method, model: str, seed: int) -> RoleSpec:
    own = arena.pool.get(model, method)
    return RoleSpec(arena.engine(model), _sampling(arena, own, seed))


def _sampling(arena: Arena, own: Method | Member, seed: int, model: str | None = None) -> Sampling:
    """The numbers of a method or a member; where a method has none, those of the member that is its model, or else of
    the arena.
    """
    member = arena.pool.get(model, Member()) if model else Member()
    tokens = (own.max_tokens, member.max_tokens, arena.max_tokens)
    temperatures = (own.temperature, member.temperature, arena.temperature)
    return Sampling(
        next(number for number in tokens if number is not None),
        next(number for number in temperatures if number is not None),
        seed=seed,
    )
