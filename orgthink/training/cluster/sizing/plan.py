"""Whether a step fits on a cluster, what it lacks, and which part takes longest."""

from __future__ import annotations

from dataclasses import dataclass, field

from orgthink.training.cluster.sizing.hardware import Accelerator, Cluster
from orgthink.training.cluster.sizing.memory import GIB, Memory, fitting, memory
from orgthink.training.cluster.sizing.seconds import Seconds, seconds
from orgthink.training.cluster.sizing.setup import Setup
from orgthink.training.cluster.sizing.shape import Model
from orgthink.training.cluster.sizing.work import Work


@dataclass(frozen=True, slots=True)
class Plan:
    """Memory and time of a model's training step on a cluster."""

    name: str
    """Name of the trainer: `embedded` or `verl`."""
    model: Model
    """The trained model."""
    setup: Setup
    """How it is trained."""
    work: Work
    """Work of a step."""
    gpu: Accelerator
    """The GPU."""
    cluster: Cluster = field(default_factory=Cluster)
    """Number of GPUs, and the rates they reach."""

    def __post_init__(self) -> None:
        gpus = self.cluster.gpus
        for name in ("tensor", "split"):
            if gpus % getattr(self.setup, name):
                raise ValueError(f"{name} is {getattr(self.setup, name)}: it must divide the {gpus} GPUs")
        if not self.setup.sharded and gpus > 1:
            raise ValueError(f"{self.name} trains on one GPU, not on {gpus}")

    @property
    def memory(self) -> Memory:
        return memory(self.model, self.setup, self.work, self.gpu, self.cluster)

    @property
    def fitting(self) -> int:
        return fitting(self.model, self.setup, self.work, self.memory, self.cluster)

    @property
    def seconds(self) -> Seconds | None:
        return seconds(self.model, self.setup, self.work, self.gpu, self.cluster)

    @property
    def lacks(self) -> list[str]:
        """What does not fit, each with a remedy; empty if everything fits."""
        usable, memory = self.gpu.memory * 1e9 * self.cluster.usable, self.memory
        states = memory.weights + memory.gradients + memory.adam
        more = "more GPUs" if self.setup.sharded else "shard it, with verl"
        smaller = "a smaller pack" if self.setup.pack > self.work.reach else "shorter rows, or shard it, with verl"
        split = "a larger split" if self.setup.sharded else smaller
        found = []
        if memory.training > usable:
            remedy = more if states >= memory.activations else split
            found.append(f"training lacks {(memory.training - usable) / GIB:.1f} GiB a GPU ({remedy})")
        if self.work.concurrent and memory.sampling > usable:
            remedy = "a larger tensor" if memory.cache < 0 else f"{more}, or a smaller share"
            found.append(f"sampling lacks {(memory.sampling - usable) / GIB:.1f} GiB a GPU ({remedy})")
        if self.work.concurrent and not self.fitting:
            found.append(f"no cache holds {self.work.reach:,} tokens (a larger share or tensor)")
        return found

    @property
    def verdict(self) -> str:
        """Whether it fits, and if so which part takes longest."""
        if self.lacks:
            return "does not fit: " + "; ".join(self.lacks)
        seconds = self.seconds
        assert seconds is not None, "a sequence fits"
        parts = {name: getattr(seconds, name) for name in ("prefill", "decoding", "training", "push")}
        longest = max(parts, key=parts.__getitem__)
        return f"fits; {longest} takes longest, {parts[longest] / seconds.step:.0%} of the step"
