"""`orgthink simulate`: recorded episodes on GPUs, simulated: wall clock, utilization and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from orgthink.errors import UserError, pick, require_at_least, user_input
from orgthink.terminal import one_line, show

if TYPE_CHECKING:
    from orgthink.scale.simulation.engine import EngineModel
    from orgthink.scale.simulation.program import AgentProgram


@dataclass(frozen=True)
class Simulate:
    """Estimate what the episodes of a run would take on GPUs, all at once: wall clock, utilization, cost.

    Lengths, forks and joins are those of the record. The seconds of a GPU's steps are estimates from data sheets;
    docs/cost_at_scale.md has the model and its checks. Nothing is run.
    """

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """Run folder with the episodes."""
    model: str = "qwen3-4b"
    """Model that decodes: a name such as `qwen3-8b`, a folder or a config.json."""
    gpus: tuple[int, ...] = (1, 8, 64)
    """Numbers of GPUs."""
    gpu: str = "h100"
    """Accelerator: `a100`, `h100`, `h200`, `b200`, `l40s`."""
    price: float = 2.5
    """Dollars for an hour of a GPU."""
    assume: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE")] = ()
    """Other values of the estimate, such as slots=512 tensor=2 streaming=0.7. An unknown name lists all of them."""

    def __call__(self) -> int:
        from orgthink.scale.simulation.gpu import Serving, estimated
        from orgthink.scale.simulation.recorded import recorded
        from orgthink.scale.sizing.configs import config_of
        from orgthink.scale.sizing.hardware import ACCELERATORS, Accelerator, Cluster
        from orgthink.scale.sizing.shape import Model
        from orgthink.scale.sizing.sweep import assumptions, with_assumed
        from orgthink.store import RunFolder

        card = pick("GPU", self.gpu.lower(), ACCELERATORS)
        values = assumptions(self.assume, (Serving, Cluster, Accelerator))
        with user_input():
            serving = with_assumed(Serving(), values)
            card, cluster = with_assumed(card, values), with_assumed(Cluster(), values)
            engine = estimated(Model.of(config_of(self.model)), card, cluster, serving)
            require_at_least(0, self, "price")
        if wrong := [n for n in self.gpus if not 1 <= n <= MOST_GPUS or n % serving.tensor]:
            raise UserError(
                f"--gpus {wrong[0]}: it must be a multiple of tensor={serving.tensor}, from 1 to {MOST_GPUS:,}"
            )
        programs: dict[str, list[AgentProgram]] = {}
        for episode in RunFolder.open(self.folder).episodes():
            programs.setdefault(episode.organization, []).append(recorded(episode))
        show(f"{self.model}, {self.gpu}, estimated; all episodes at once; ${self.price:g} for an hour of a GPU")
        try:
            show(*_table(programs, engine, [(n, n // serving.tensor) for n in self.gpus], self.price))
        except RecursionError:
            raise UserError(f"{self.folder}: its agents fork each other too deep to be estimated") from None
        return 0


MOST_GPUS = 100_000
"""Largest number of GPUs."""
TITLES = (
    "organization",
    "episodes",
    "agents",
    "GPUs",
    "seconds",
    "mean s",
    "utilization",
    "rows",
    "tokens/s",
    "$/episode",
)
"""Columns: seconds until the last episode and until the mean one ends, and the mean batch of a busy replica."""


def _table(
    programs: Mapping[str, list[AgentProgram]], engine: EngineModel, gpus: Sequence[tuple[int, int]], price: float
) -> Iterator[str]:
    """The lines of the table. `gpus` are numbers of GPUs, and of the replicas on them."""
    from orgthink.scale.simulation.cluster import simulate

    rows = [TITLES]
    for name, episodes in programs.items():
        agents = sum(1 for program in episodes for agent in program if agent.prompt)
        for n, replicas in gpus:
            it = simulate(episodes, engine, replicas)
            mean = sum(it.episodes) / len(episodes)
            speed, cost = it.sampled / it.seconds if it.seconds else 0, n * it.seconds * price / 3600 / len(episodes)
            rows.append(
                (one_line(name), f"{len(episodes):,}", f"{agents:,}", f"{n:,}", f"{it.seconds:,.1f}", f"{mean:,.1f}",
                 f"{it.utilization:.0%}", f"{it.rows:.1f}", f"{speed:,.0f}", f"{cost:.2g}")
            )  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        yield name.ljust(widths[0]) + "".join(f"  {cell:>{w}}" for cell, w in zip(cells, widths[1:], strict=True))
