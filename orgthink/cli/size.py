"""`orgthink size`: memory and time of a training step on GPUs, and whether it fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from orgthink.util.errors import UserError, user_input
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
        try:
            from orgthink.training.recipes import registry as recipes
        except ModuleNotFoundError as error:
            raise UserError(f"sizes of recipes need {error.name}: pip install 'orgthink[local]'") from error
        from orgthink.training.cluster.sizing.model import config_of, known_models, require_known
        from orgthink.training.cluster.sizing.recipe import model_of, plans

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
            found = plans(job, config, self.gpus, self.gpu, self.assume)
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

ROWS: Mapping[str, Callable[[Plan], float | None]] = {
    "weights GiB": lambda plan: plan.memory.weights / GIB,
    "gradients GiB": lambda plan: plan.memory.gradients / GIB,
    "Adam states GiB": lambda plan: plan.memory.adam / GIB,
    "reference GiB": lambda plan: plan.memory.reference / GIB,
    "gathered GiB": lambda plan: plan.memory.gathered / GIB,
    "activations GiB": lambda plan: plan.memory.activations / GIB,
    "sampler GiB": lambda plan: plan.memory.sampler / GIB,
    "its cache GiB": lambda plan: max(0.0, plan.memory.cache) / GIB,
    "= training GiB": lambda plan: plan.memory.training / GIB,
    "= sampling GiB": lambda plan: plan.memory.sampling / GIB if plan.work.concurrent else None,
    "concurrent sequences": lambda plan: plan.fitting,
    "prefill s": lambda plan: None if plan.seconds is None else plan.seconds.prefill,
    "decoding s": lambda plan: None if plan.seconds is None else plan.seconds.decoding,
    "training s": lambda plan: None if plan.seconds is None else plan.seconds.training,
    "push s": lambda plan: None if plan.seconds is None else plan.seconds.push,
    "= step s": lambda plan: None if plan.seconds is None else plan.seconds.step,
}
"""Rows of the table: memory of one GPU; sequences and seconds of the cluster."""


def table(found: Sequence[Plan]) -> list[str]:
    """A column for each plan, without rows that are empty for all plans; then the verdict of each plan."""
    heads = [f"{plan.name} × {plan.cluster.gpus}" for plan in found]
    lines = [["", *heads]]
    for name, value in ROWS.items():
        values = [value(plan) for plan in found]
        if any(values):
            lines.append([name, *map(number, values)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rows = [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]
    most = max(map(len, heads))
    return ["", *rows, "", *(f"{head:<{most}}  {plan.verdict}" for head, plan in zip(heads, found, strict=True))]


def number(value: float | None) -> str:
    """About three significant digits."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == 0 or isinstance(value, int) else f"{value:#.3g}"


def parameters(count: int) -> str:
    """A number of parameters, in billions or millions."""
    return f"{count / 1e9:.2f} B" if count >= 1e9 else f"{count / 1e6:.2f} M"
