"""Plans of a recipe or a model on 1, 2, 4, … GPUs, with the user's assumptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

from orgthink.training.cluster.sizing.hardware import ACCELERATORS, Accelerator, Cluster
from orgthink.training.cluster.sizing.plan import Plan
from orgthink.training.cluster.sizing.recipe import embedded_setup, verl_setup, work_of
from orgthink.training.cluster.sizing.setup import Setup
from orgthink.training.cluster.sizing.shape import Model
from orgthink.training.cluster.sizing.work import Work
from orgthink.training.recipes.jobs import Job, Reinforced
from orgthink.util.errors import UserError, pick, user_input
from orgthink.util.validation import typed

Sizes = TypeVar("Sizes")


def plans(job: Job | None, config: Mapping[str, Any], gpus: int, gpu: str, assumed: Sequence[str] = ()) -> list[Plan]:
    """The embedded trainer on one GPU, then verl on 1, 2, 4, … GPUs. `split` and `tensor` must divide their number.

    UserError for an invalid assumption, or if no plan is left."""
    card = pick("GPU", gpu.lower(), ACCELERATORS)
    setups = {"embedded": embedded_setup(job)}
    if job is None or isinstance(job, Reinforced):
        setups["verl"] = verl_setup(job, config)
    values = assumptions(assumed, (Work, Setup, Cluster, Accelerator))
    found = []
    with user_input():
        work = with_assumed(work_of(job, config), values)
        card = with_assumed(card, values)
        cluster = with_assumed(Cluster(), values)
        model = Model.of(config)
        for name, setup in setups.items():
            setup = with_assumed(setup, values)
            for n in counts(gpus) if setup.sharded else [1]:
                if n % setup.tensor == 0 and n % setup.split == 0:
                    found.append(Plan(name, model, setup, work, card, replace(cluster, gpus=n)))
    if not found:
        raise UserError("tensor and split divide no number of GPUs: raise --gpus, or lower tensor and split")
    return found


def counts(most: int) -> list[int]:
    """1, 2, 4, … and `most`."""
    return sorted({*(2**i for i in range(most.bit_length())), most})


def assumptions(given: Sequence[str], kinds: Sequence[type]) -> dict[str, str]:
    """NAME=VALUE strings as a dictionary. UserError unless each name is a field of one of these dataclasses."""
    known = {item.name: None for kind in kinds for item in fields(kind) if item.name != "gpus"}
    values = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise UserError(f"--assume {each}: write NAME=VALUE, such as sampled=700")
        if name not in known:
            raise UserError(f"--assume {each}: unknown name; known: {', '.join(known)}")
        values[name] = value
    return values


def with_assumed(sizes: Sizes, values: Mapping[str, str]) -> Sizes:
    """The dataclass with the values that name its fields. UserError for a value of the wrong type."""
    old = asdict(sizes)  # type: ignore[call-overload]  # its callers are dataclasses
    return typed(type(sizes), old | {name: value for name, value in values.items() if name in old}, "--assume")
