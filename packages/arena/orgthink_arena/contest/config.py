"""What an arena compares, and how: its file, checked as it is read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from orgthink.engines import EngineSpec, engine_spec, names_engine, shipped
from orgthink.organizations import ORGANIZATIONS
from orgthink.tasks.task import Split
from orgthink.util.errors import pick, require_at_least, user_input
from orgthink.util.files import require_folder_name
from orgthink.util.settings import require_known
from orgthink.util.tabular import toml_tables
from orgthink.util.validation import typed

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
    mean_of: dict[str, float] = field(default_factory=dict)
    """Preparation → weight of its model, for the recipe `mean-of-models`: those of the same seed, or of all seeds where
    this one is run once."""
    seeded: bool = True
    """Whether each seed has a run of its own. One that draws nothing at random is run once."""

    def __post_init__(self) -> None:
        if self.mean_of and (self.after is not None or self.model is not None):
            raise ValueError("a preparation that is a mean of others has no `model` and no `after`")
        if self.model is not None and self.after is not None:
            raise ValueError(f"a preparation starts from {self.model} or after {self.after}: name one of both")

    @property
    def before(self) -> tuple[str, ...]:
        """Names of the preparations that it needs."""
        return tuple(self.mean_of) if self.after is None else (self.after,)


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
    """Method that runs without a cap, and whose mean budget is everybody's cap."""
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
    prepared_in: str | None = None
    """Name of the folder of preparations, beside the arena's own folder, so that arenas of other tasks use them too;
    `None`: inside the arena's folder."""
    concurrency: int = 64
    """Episodes that run at once; it affects only the running time."""
    page: int = 6
    """Problems whose episodes are on the page."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "n", "samples", "concurrency", "capacity", "max_tokens")
        require_at_least(0, self, "timed", "page", "temperature")
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
        shared = () if self.prepared_in is None else (self.prepared_in,)
        for name in (*self.methods, *self.pool, *self.preparations, *shared):
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
        """A preparation and those that come before it, the first one first; `following` come after it. UserError for
        one that is not there.

        ValueError if one comes after itself, or has one run for all seeds after one that has a run for each.
        """
        if name in following:
            raise ValueError(f"the preparation {name} comes after itself")
        each = pick("preparation", name, self.preparations)
        found = [one for before in each.before for one in self.stages(before, (*following, name))]
        if each.after is not None and self.preparations[each.after].seeded and not each.seeded:
            raise ValueError(f"{each.after} has a run for each seed, so {name}, which comes after it, needs them too")
        return list(dict.fromkeys((*found, name)))

    def runs_before(self, name: str, seed: int) -> dict[Run, float]:
        """The runs that a preparation's run starts from, with the weights of their models."""
        each = self.preparations[name]
        weights = each.mean_of if each.after is None else {each.after: 1.0}
        return {
            (before, one): weight
            for before, weight in weights.items()
            for one in (self.seeds if self.preparations[before].seeded and not each.seeded else (seed,))
        }

    def runs(self, method: str, seed: int) -> list[Run]:
        """All runs of preparations that a method needs with a seed, each after those that come before it."""
        return list(dict.fromkeys(run for each in self.methods[method].preparations for run in self._runs(each, seed)))

    def _runs(self, name: str, seed: int) -> Iterator[Run]:
        for run in self.runs_before(name, seed):
            yield from self._runs(*run)
        yield name, seed

    def needed(self, method: str) -> list[str]:
        """All preparations that a method needs, each after those that come before it."""
        return list(dict.fromkeys(one for each in self.methods[method].preparations for one in self.stages(each)))

    def engine(self, name: str) -> EngineSpec:
        """The engine of a member of the pool, or of a model by its name."""
        member = self.pool.get(name, Member())
        model = member.model or name
        here = shipped(model) is not None or names_engine(model) or Path(model).is_dir()
        return engine_spec(model, member.url or (None if here else self.url))

    @property
    def first(self) -> str:
        """The first member of the pool."""
        return next(iter(self.pool))


def known_settings(organization: str) -> list[str]:
    """Settings of an organization."""
    cls: Any = ORGANIZATIONS[organization]
    return [each.name for each in fields(cls) if each.name != "name"]


def read_arena(file: Path, changes: Mapping[str, Any] | None = None) -> Arena:
    """The arena of a TOML file; `changes` replace its values. UserError for what is wrong with it.

    Folders of models get their whole paths, so that it can be gone on with from anywhere.
    """
    data = toml_tables(file) | dict(changes or {})
    with user_input():
        require_known(Arena, data)
        return with_whole_paths(typed(Arena, data, file))


def with_whole_paths(arena: Arena) -> Arena:
    """The arena with the whole paths of folders of models, and of files that a preparation learns from."""

    def named(name: Any) -> Any:
        return name if isinstance(name, str) and name in arena.pool else _whole(name)

    def member(name: str, each: Member) -> Member:
        model = name if each.model is None else each.model
        return each if each.url is not None or _whole(model) == model else replace(each, model=_whole(model))

    def preparation(each: Preparation) -> Preparation:
        files = {place: each.settings[place] for place in ("pairs", "episodes") if place in each.settings}
        given = {place: str(Path(path).resolve()) for place, path in files.items() if os.path.exists(str(path))}
        return replace(each, model=_whole(each.model), settings={**each.settings, **given})

    def method(each: Method) -> Method:
        roles = {role: named(name) for role, name in each.roles.items()}
        models = {place for place in each.grid if place == MODEL or place.startswith(f"{ROLES}.")}
        grid = {place: tuple(map(named, values)) if place in models else values for place, values in each.grid.items()}
        return replace(each, model=named(each.model), roles=roles, grid=grid)

    return replace(
        arena,
        pool={name: member(name, each) for name, each in arena.pool.items()},
        preparations={name: preparation(each) for name, each in arena.preparations.items()},
        methods={name: method(each) for name, each in arena.methods.items()},
    )


def _whole(name: Any) -> Any:
    """The path of a folder of a model; anything else as it is."""
    if not isinstance(name, str) or shipped(name) is not None or not (Path(name) / "config.json").is_file():
        return name
    return str(Path(name).resolve())
