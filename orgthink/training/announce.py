"""What a training says on standard error before and after its steps."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from orgthink.util.terminal import show


class Rates(Protocol):
    """Settings of a training with a warm-up."""

    @property
    def steps(self) -> int:
        """Number of steps."""
        ...

    @property
    def warmup(self) -> int:
        """Number of steps with linear warm-up."""
        ...

    @property
    def learning_rate(self) -> float:
        """Peak learning rate."""
        ...

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        ...


def say_start(settings: Rates, step: int, removed: int) -> None:
    """Say from which step a training goes on, and if its warm-up is never over.

    `removed` is the number of recorded steps that are done again.
    """
    if step >= settings.steps:
        return
    if step:
        show(f"orgthink: going on from step {step}", error=True)
    elif removed:
        show(f"orgthink: none of {removed} recorded steps was saved: beginning again", error=True)
    if settings.warmup > settings.steps:
        share = settings.rate(settings.steps - 1) / settings.learning_rate
        show(
            f"orgthink: the warm-up takes {settings.warmup} steps of {settings.steps}: the learning rate ends at "
            f"{share:.0%} of learning_rate; lower warmup if that is not meant",
            error=True,
        )


def say_saved(run: Path, step: int) -> None:
    """Say that nothing is lost of a training that an error ended."""
    show(f"orgthink: step {step} is saved: go on with orgthink train --resume {run}", error=True)


def say_recorded(run: Path, step: int, episodes: int) -> None:
    """Say where the episodes of a step are that an error ended."""
    show(
        f"orgthink: {episodes} episodes of step {step}, which failed, are recorded: look at them with "
        f"orgthink view {run} --step {step}",
        error=True,
    )
