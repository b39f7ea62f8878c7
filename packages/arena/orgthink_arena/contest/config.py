"""What an arena compares, and how: its file, checked as it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from orgthink.engines import EngineSpec, engine_spec, is_local
from orgthink.evaluation.specs import known_settings
from orgthink.organizations import ORGANIZATIONS
from orgthink.tasks.task import Split
from orgthink.util.errors import pick, require_at_least, user_input
from orgthink.util.files import require_folder_name
from orgthink.util.settings import require_known, typed
from orgthink.util.tabular import toml_tables

Run = tuple[str, int]
"""A preparation and a seed."""

MODEL = "model"
"""What a grid and `prepared` call the model of a method's own agents."""
ROLES = "roles"
"""What they call the models of other roles: `roles.worker`."""
NUMBERS = ("temperature", "max_tokens", "capacity")
"""Numbers of a method that its grid may choose as well, unless its organization has a setting of that name."""

LARGEST_FACTOR = 1_000_000
"""Largest factor of a cap."""


def cap_name(factor: float) -> str:
    """The name of a cap, such as `2x`; its evaluations lie in folders of this name."""
    return f"{factor:g}x"


@dataclass(frozen=True, slots=True)
class Member:
    """A model of the pool, which every method may use."""

    description: str = ""
    """What managers and routers read about it."""
    model: str | None = None
    """A shipped model, a folder, or a server's name for one; `None`: that of the member's name."""
    url: str | None = None
    """Its server; `None`: the arena's, or none for a model that lies here."""
    max_tokens: int | None = None
    """Tokens of a reply; `None`: the arena's."""
    temperature: float | None = None
    """Of its sampling; `None`: the arena's."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """A search or a training that comes before: a recipe, run once for each seed."""

    recipe: str
    """Name of the recipe."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the recipe by their path, such as `"rollout.problems" = 8`."""
    model: str | None = None
    """Model that the recipe starts from; `None`: its own."""
    after: str | None = None
    """Preparation whose model it starts from, that of the same seed: reinforcement learning after fine-tuning."""
    seeded: bool = True
    """Whether each seed has a run of its own. One that draws nothing at random is run once."""

    def __post_init__(self) -> None:
        if self.model is not None and self.after is not None:
            raise ValueError(f"a preparation starts from {self.model} or after {self.after}: name one of both")


@dataclass(frozen=True, slots=True)
class Method:
    """A row of the table: an organization with its settings and models."""

    organization: str
    """Name of the organization."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Its settings, before those of `shared` and those of its model's preset."""
    model: str | None = None
    """Member or model of its own agents; `None`: the first member of the pool."""
    pool: tuple[str, ...] | None = None
    """Members that it may use; `None`: all."""
    roles: dict[str, str] = field(default_factory=dict)
    """Members or models of other roles, such as worker = "pocket"."""
    prepared: dict[str, str] = field(default_factory=dict)
    """Setting, `model` or `roles.ROLE` → PREPARATION for its result, or PREPARATION/FILE for a file of its folder."""
    grid: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Setting, `model`, `roles.ROLE` or a number below → values to choose from on development problems, at each cap."""
    max_tokens: int | None = None
    """Tokens of a reply of its own agents; `None`: the arena's."""
    temperature: float | None = None
    """Of its own agents; `None`: the arena's."""
    renew: bool = True
    """Whether each reply of an agent has `max_tokens`; if not, all its replies together."""
    capacity: int | None = None
    """Agents at work at once; `None`: the arena's."""
    depth: int = 1
    """Levels of forks."""
    group: str = ""
    """What it belongs to in the table and in the plots."""
    note: str = ""
    """What was trained or searched elsewhere, for the reader of the table."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "max_tokens", "capacity", "depth")
        if any(not values for values in self.grid.values()):
            raise ValueError("a setting of a grid has no values")
        for place in NUMBERS:
            for value in self.grid.get(place, ()):
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise ValueError(f"{place} of a grid is {value!r}: it must be a number")

    @property
    def variants(self) -> list[dict[str, Any]]:
        """Every combination of the grid; one empty combination without a grid."""
        return [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]

    @property
    def preparations(self) -> tuple[str, ...]:
        """Names of the preparations that it needs."""
        return tuple(dict.fromkeys(source.partition("/")[0] for source in self.prepared.values()))


@dataclass(frozen=True, slots=True)
class Development:
    """Problems on which a method with a grid chooses its settings."""

    task: str
    """Name of a task, such as a part of the training problems: `TASK@0/2`."""
    n: int = 16
    """Number of problems."""
    samples: int = 1
    """Attempts at each of them."""
    split: Split = "train"
    """`train` problems are never those of the table."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "n", "samples")


@dataclass(frozen=True, slots=True)
class Arena:
    """Everything that decides the table. config.json stores it."""

    task: str
    """Name of the task of the table's problems."""
    methods: dict[str, Method]
    """Rows by name."""
    pool: dict[str, Member]
    """The models that all methods share, by name."""
    reference: str
    """Method that runs without a cap, and whose mean budget is the cap of all methods."""
    n: int = 100
    """Number of problems."""
    samples: int = 1
    """Attempts at each problem with each seed."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of the preparations and of the sampling."""
    seed: int = 0
    """Of the stream of problems."""
    split: Split = "test"
    """`test` problems are held out from training."""
    unit: str | None = None
    """What the intervals are over: an entry of each problem's data, such as `target`, where problems that share one are
    hard for the same reason. Each of its values weighs the same; `None`: the problem."""
    factors: tuple[float, ...] = (1.0, 2.0)
    """Caps as multiples of the reference's mean budget; the first one is that of `table1`. With `uncapped` there may
    be none."""
    uncapped: bool = False
    """Whether all methods run without a cap, too."""
    timed: int = 0
    """Problems whose episodes run one at a time, to measure seconds; 0 measures none."""
    capacity: int = 8
    """c: agents that may be at work at once."""
    max_tokens: int = 512
    """Tokens of a reply."""
    temperature: float = 1.0
    """Of all sampling."""
    prompts: str | None = None
    """Prompt style; `None`: that of each model."""
    url: str | None = None
    """Server of the models that lie nowhere here."""
    shared: dict[str, Any] = field(default_factory=dict)
    """Settings of every organization that has them, such as tools and suite."""
    development: Development | None = None
    """Problems for the choices of grids."""
    preparations: dict[str, Preparation] = field(default_factory=dict)
    """Searches and trainings by name."""
    concurrency: int = 64
    """Episodes that run at once; it affects only the running time."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "n", "samples", "concurrency", "capacity", "max_tokens")
        require_at_least(0, self, "timed", "temperature")
        if not self.pool or not self.methods:
            raise ValueError("an arena needs a pool with a model and at least one method")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError("an arena needs seeds, each once")
        if not (self.factors or self.uncapped):
            raise ValueError("an arena needs factors, or uncapped = true")
        if not all(0 < factor <= LARGEST_FACTOR for factor in self.factors):
            raise ValueError(f"the factors of an arena must be above 0 and at most {LARGEST_FACTOR:,}")
        if len({cap_name(factor) for factor in self.factors}) < len(self.factors):
            raise ValueError("two factors of the arena are the same at six digits: name each once")
        for name in (name for name in self.pool if "/" in name):
            raise ValueError(f'{name!r} in [pool]: write "{name.rpartition("/")[2]}".model = "{name}"')
        for name in (*self.methods, *self.pool, *self.preparations):
            require_folder_name(name)
        for name in self.preparations:
            self.stages(name)
        pick("method", self.reference, self.methods)
        for name, method in self.methods.items():
            self._check(name, method)

    def _check(self, name: str, method: Method) -> None:
        """UserError for a method that names what is not there."""
        pick("organization", method.organization, ORGANIZATIONS)
        known = dict.fromkeys(known_settings(method.organization))
        for place in (*method.settings, *method.prepared, *method.grid):
            number = place in NUMBERS and place in method.grid
            if place != MODEL and not place.startswith(f"{ROLES}.") and not number:
                pick(f"setting of {name}", place.partition(".")[0], known)
        for place in method.grid.keys() & method.prepared.keys():
            raise ValueError(f"{name} has {place} in grid and in prepared: leave it out of one of them")
        for preparation in method.preparations:
            pick("preparation", preparation, self.preparations)
        for member in method.pool or ():
            pick("member of the pool", member, self.pool)
        if method.grid and self.development is None:
            raise ValueError(f"{name} has a grid: name the problems that it chooses on, in [development]")

    def stages(self, name: str, following: tuple[str, ...] = ()) -> list[str]:
        """A preparation and those that come before it, the first one first; `following` come after it.

        UserError for an unknown preparation, ValueError for a circle, or if one run follows a run of each seed.
        """
        if name in following:
            raise ValueError(f"the preparation {name} comes after itself")
        each = pick("preparation", name, self.preparations)
        if each.after is None:
            return [name]
        found = self.stages(each.after, (*following, name))
        if self.preparations[each.after].seeded and not each.seeded:
            raise ValueError(f"{each.after} has a run for each seed, so {name}, which comes after it, needs them too")
        return [*found, name]

    def needed(self, method: str) -> list[str]:
        """All preparations that a method needs, each after those that come before it."""
        return list(dict.fromkeys(one for each in self.methods[method].preparations for one in self.stages(each)))

    def engine(self, name: str) -> EngineSpec:
        """The engine of a member of the pool, or of a model by its name."""
        member = self.pool.get(name, Member())
        model = member.model or name
        return engine_spec(model, member.url or (None if is_local(model) else self.url))

    @property
    def first(self) -> str:
        """The first member of the pool."""
        return next(iter(self.pool))


def read_arena(file: Path, changes: Mapping[str, Any] | None = None) -> Arena:
    """The arena of a TOML file; `changes` replace its values. UserError for an invalid file."""
    data = toml_tables(file) | dict(changes or {})
    with user_input():
        require_known(Arena, data)
        return typed(Arena, data, file)
