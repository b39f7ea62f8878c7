"""`python -m benchmarks.cost_at_scale`: the tables and the figure of docs/cost_at_scale.md, on estimated GPUs.

Everything is a function of the constants below. Nothing was measured on a GPU.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
from experiments.shared.plots import save
from experiments.shared.readme import fill
from matplotlib.figure import Figure
from orgthink.training.cluster.simulation.cluster import simulate
from orgthink.training.cluster.simulation.gpu import Serving, estimated
from orgthink.training.cluster.simulation.program import AgentProgram
from orgthink.training.cluster.simulation.synthetic import (
    DividedTask,
    fork_join,
    majority_vote,
    rounds,
    sequential,
    tree,
)

from orgthink.training.cluster.sizing.model import Model, config_of
from orgthink.training.cluster.sizing.step import ACCELERATORS, Cluster
from orgthink.util.files import write_whole

PAGE = Path(__file__).parent.parent / "docs" / "cost_at_scale.md"

CONFIG = config_of("qwen3-4b")
ENGINE = estimated(Model.of(CONFIG), ACCELERATORS["h100"], Cluster(), Serving())
CONTEXT = CONFIG["max_position_embeddings"]
"""Largest context of the model, in tokens."""
PRICE = 2.5
"""Assumed: dollars for an hour of an H100."""
TASK = DividedTask(work=32_768)
WIDTHS = (2, 4, 8, 16, 32, 64, 128, 256, 1_000, 10_000)
GPUS = (1, 8, 64, 1_000)
SEEDS = 3
ROUNDS = 4
"""Rounds of ParaManager."""
TREES = {
    2: (2,),
    4: (2, 2),
    8: (2, 4),
    16: (4, 4),
    32: (4, 8),
    64: (8, 8),
    128: (8, 16),
    256: (16, 16),
    1_000: (10, 10, 10),
    10_000: (10, 10, 10, 10),
}
"""Fan-out of each level of a tree, by the number of workers."""

Maker = Callable[[DividedTask, int, random.Random], AgentProgram]
"""An organization of so many workers for a task."""


class Found(NamedTuple):
    """Means over the seeds of a task's simulations."""

    seconds: float
    """Wall clock."""
    utilization: float
    """Share of the GPUs' time in steps."""
    busy: float
    """GPU seconds in steps."""
    agents: float
    """Agents that decode."""

    def dollars(self, gpus: int) -> float:
        """Price of all GPUs for the wall clock."""
        return gpus * self.seconds * PRICE / 3600


ORGANIZATIONS: Mapping[str, Maker] = {
    "fork–join": fork_join,
    "tree": lambda task, width, rng: tree(task, TREES[width], rng),
    f"{ROUNDS} rounds": lambda task, width, rng: rounds(task, width, ROUNDS, rng),
    "vote": majority_vote,
}


@cache
def found(name: str, task: DividedTask, width: int, gpus: int, episodes: int = 1) -> Found | None:
    """Means of an organization over the seeds; `None` if a context exceeds the model's."""
    outcomes, agents = [], []
    for seed in range(SEEDS):
        rng = random.Random(seed)
        programs = [programmed(name, task, width, rng) for _ in range(episodes)]
        everyone = [agent for program in programs for agent in program if agent.prompt]
        if max(agent.context for agent in everyone) > CONTEXT:
            return None
        outcomes.append(simulate(programs, ENGINE, gpus))
        agents.append(len(everyone))
    mean = statistics.fmean
    return Found(
        mean(each.seconds for each in outcomes),
        mean(each.utilization for each in outcomes),
        mean(each.busy for each in outcomes),
        mean(agents),
    )


def programmed(name: str, task: DividedTask, width: int, rng: random.Random) -> AgentProgram:
    """The program of an organization; with a width of 1, of one agent."""
    return sequential(task) if width == 1 else ORGANIZATIONS[name](task, width, rng)


def cell(name: str, width: int, gpus: int) -> str:
    """Seconds, utilization and dollars of one episode."""
    it = found(name, TASK, width, gpus)
    return "–" if it is None else f"{it.seconds:,.0f} s · {it.utilization:.1%} · ${it.dollars(gpus):,.2f}"


def one_episode(name: str) -> str:
    """Table of an organization: widths × GPUs."""
    rows = []
    for width in WIDTHS if name == "vote" else (1, *WIDTHS):
        any_ = found(name, TASK, width, GPUS[0])
        agents = "–" if any_ is None else f"{any_.agents:,.0f}"
        rows.append([f"{width:,}", agents, *(cell(name, width, gpus) for gpus in GPUS)])
    return table(["width", "agents", *(f"{gpus:,} GPU{'s' if gpus > 1 else ''}" for gpus in GPUS)], rows)


TASKS = tuple(
    replace(TASK, work=work, serial=serial, spread=spread)
    for work in (2_048, 8_192, 32_768)
    for serial in (0.0, 0.1, 0.5)
    for spread in (0.0, 0.5, 1.0)
)


def what_pays() -> str:
    """Table of tasks: the width with the shortest wall clock of fork–join and of trees, and what it costs."""
    rows = []
    for task in TASKS:
        row = [f"{task.work:,}", f"{task.serial:.0%}", f"{task.spread:g}"]
        alone = found("fork–join", task, 1, 64)
        assert alone is not None, "one agent's context fits"
        row.append(f"{alone.seconds:,.0f}")
        for name in ("fork–join", "tree"):
            by_width = {width: found(name, task, width, 64) for width in WIDTHS}
            fitting = {width: it for width, it in by_width.items() if it is not None}
            best = min(fitting, key=lambda width: fitting[width].seconds)
            it = fitting[best]
            row += [
                f"{best:,}",
                f"{it.seconds:,.0f}",
                f"{alone.seconds / it.seconds:.1f}",
                f"{it.busy / alone.busy:.2f}",
            ]
        rows.append(row)
    names = ("width", "seconds", "faster", "GPU·s")
    titles = [
        "work",
        "serial",
        "spread",
        "alone, s",
        *(f"{kind}: {name}" for kind in ("fork–join", "tree") for name in names),
    ]
    return table(titles, rows)


LOADS = (8, 64, 512)
"""Episodes at once on 8 GPUs."""


def under_load() -> str:
    """Table of fork–join on 8 GPUs: widths × episodes at once."""
    rows = []
    for width in (1, 4, 16, 64):
        row = [f"{width:,}"]
        for episodes in LOADS:
            it = found("fork–join", TASK, width, 8, episodes)
            assert it is not None, "the context fits"
            row.append(f"{it.seconds:,.0f} s · {it.utilization:.0%} · ${it.dollars(8) / episodes:,.3f}")
        rows.append(row)
    return table(["width", *(f"{episodes:,} episodes" for episodes in LOADS)], rows)


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown, right-aligned."""
    lines = [titles, ["--:"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def curves(rows: Sequence[Mapping[str, float]]) -> Figure:
    """Wall clock against width on 64 GPUs."""
    figure, axes = plt.subplots(figsize=(6, 3.6))
    for name in ORGANIZATIONS:
        points = [(row["width"], row[name]) for row in rows if name in row]
        axes.plot(*zip(*points, strict=True), marker="o", ms=3, label=name)
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="wall clock, s")
    axes.legend()
    return figure


def points() -> list[dict[str, float]]:
    """Rows of the figure: a width, and seconds by organization."""
    rows = []
    for width in (1, *WIDTHS):
        seconds = {name: found(name, TASK, width, 64) for name in ORGANIZATIONS}
        rows.append({"width": width, **{name: it.seconds for name, it in seconds.items() if it is not None}})
    return rows


def main() -> None:
    blocks = {name: one_episode(name) for name in ORGANIZATIONS} | {"pays": what_pays(), "load": under_load()}
    write_whole(PAGE, fill(PAGE.read_text(), blocks).encode())
    save({"cost_at_scale": curves}, {"cost_at_scale": points()}, PAGE.parent, salt="cost_at_scale")
    for block in blocks.values():
        print(block, end="\n\n")


if __name__ == "__main__":
    main()
