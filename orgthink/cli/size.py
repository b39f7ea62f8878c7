"""`orgthink size`: memory and time of a training step on GPUs, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from orgthink.cli.options import by_name
from orgthink.cli.table import aligned
from orgthink.util.errors import UserError, user_input
from orgthink.util.install import needing
from orgthink.util.terminal import show

if TYPE_CHECKING:
    from orgthink.training.cluster.sizing.plan import Plan


@dataclass(frozen=True)
class Size:
    """Estimate memory, tokens and seconds of a training step on GPUs, and whether it fits. Nothing is run.

    Every budget of the recipe counts in full; `--assume sampled=700` overrides it. Frozen models, tools and launches of
    kernels are not counted: a step of few short rows takes several times as long. The
    docstrings of orgthink/training/cluster/sizing have the formulas.
    """

    what: Annotated[Positional[str], arg(metavar="RECIPE_OR_MODEL")]
    """A recipe, such as `asyncthink-qwen3-math`; or a model, with its work as `--assume problems=64 group=8 …`."""
    model: str | None = None
    """Model of the recipe: a name such as `qwen3-8b`, a folder or a config.json; the recipe may have its own."""
    gpus: int = 8
    """Largest number of GPUs: 1, 2, 4, … up to it are estimated."""
    gpu: str = "h100"
    """Accelerator: `a100`, `h100`, `h200`, `b200`, `l40s`."""
    set: Annotated[tuple[str, ...], arg(metavar="SETTING=VALUE")] = ()
    """Settings of the recipe, as in `orgthink train`."""
    assume: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE")] = ()
    """Other values of the calculation, such as sampled=700 prompt=300 share=0.6 flops=0.3 memory=96. An unknown
    name lists all of them."""

    def __call__(self) -> int:
        with needing("local"):
            from orgthink.training.cluster.sizing.model import config_of, known_models, require_known
            from orgthink.training.cluster.sizing.recipe import model_of, plans
            from orgthink.training.recipes import registry as recipes

        if self.gpus < 1:
            raise UserError(f"--gpus {self.gpus}: it must be at least 1")
        job = recipes.recipe_named(self.what) if self.what in recipes.RECIPES else None
        if job is None:
            require_known(self.what, [*recipes.RECIPES, *known_models()])
            if self.model is not None or self.set:
                raise UserError(f"{self.what} is a model: --model and --set belong to a recipe; use --assume")
        else:
            with user_input():
                job = recipes.adjusted(job, {}, self.set)
        config = config_of(self.model or (self.what if job is None else model_of(self.what, job)))
        try:
            assumed = by_name(self.assume, "--assume", "NAME=VALUE, such as sampled=700")
            found = plans(job, config, self.gpus, self.gpu, assumed)
            lines = (*summary(found[-1]), *table(found))
        except OverflowError as error:
            raise UserError("--gpus or --assume: a number is too large to calculate with") from error
        show(f"{self.what}, {self.gpu} × {self.gpus}", *lines)
        return 0


def summary(plan: Plan) -> list[str]:
    """The lines above the table: the model, the work, the GPU."""
    model, work, gpu, cluster = plan.model, plan.work, plan.gpu, plan.cluster
    return [
        f"model     {parameters(model.total)} parameters, {parameters(model.active)} active for a token; "
        f"{model.kv_bytes(plan.setup.sampler):,} bytes of cache a token",
        f"step      {work.problems} problems × {work.group} attempts × {work.agents} agents of "
        f"{work.prompt:,} prompt + {work.injected:,} injected + {work.sampled:,} sampled tokens",
        f"tokens    {work.prefilled:,.0f} read and {work.decoded:,} sampled; {work.computed:,} computed in training, "
        f"{work.trained:,} of them trained",
        f"GPU       {gpu.memory:g} GB, {gpu.bf16:g} TFLOP/s in bfloat16, {gpu.bandwidth:,g} GB/s",
        f"assumed   {cluster.flops:.0%} of the TFLOP/s, {cluster.streaming:.0%} of the bandwidth, "
        f"{cluster.usable:.0%} of the memory",
    ]


GIB = 2**30
STATES = ("weights", "gradients", "adam", "reference", "gathered", "activations", "sampler")
PARTS = ("prefill", "decoding", "training", "push")


def measures(plan: Plan) -> dict[str, float | None]:
    """Rows of the table: memory of one GPU; sequences and seconds of the cluster."""
    memory, seconds = plan.memory, plan.seconds
    return {
        **{f"{name} GiB": getattr(memory, name) / GIB for name in STATES},
        "cache GiB": max(0.0, memory.cache) / GIB,
        "= training GiB": memory.training / GIB,
        "= sampling GiB": memory.sampling / GIB if plan.work.concurrent else None,
        "concurrent sequences": plan.fitting,
        **{f"{name} s": None if seconds is None else getattr(seconds, name) for name in PARTS},
        "= step s": None if seconds is None else seconds.step,
    }


def table(found: Sequence[Plan]) -> list[str]:
    """A column for each plan, without rows that are empty for all plans; then the verdict of each plan."""
    heads = [f"{plan.name} × {plan.cluster.gpus}" for plan in found]
    columns = [measures(plan) for plan in found]
    rows = [[name, *(number(column[name]) for column in columns)] for name in columns[0]]
    empty = number(None), number(0)
    rows = [row for row in rows if not all(cell in empty for cell in row[1:])]
    verdicts = [f"{head}  {plan.verdict}" for head, plan in zip(heads, found, strict=True)]
    return ["", *aligned([["", *heads], *rows]), "", *verdicts]


def number(value: float | None) -> str:
    """About three significant digits."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == 0 or isinstance(value, int) else f"{value:#.3g}"


def parameters(count: int) -> str:
    """A number of parameters, in billions or millions."""
    return f"{count / 1e9:.2f} B" if count >= 1e9 else f"{count / 1e6:.2f} M"
