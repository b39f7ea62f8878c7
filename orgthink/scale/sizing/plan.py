"""Whether a step fits, what it lacks, and what takes longest."""

from __future__ import annotations

from dataclasses import dataclass, field

from orgthink.scale.sizing.hardware import Accelerator, Cluster
from orgthink.scale.sizing.memory import GIB, Memory, fitting, memory
from orgthink.scale.sizing.seconds import Seconds, seconds
from orgthink.scale.sizing.setup import Setup
from orgthink.scale.sizing.shape import Model
from orgthink.scale.sizing.work import Work


@dataclass(frozen=True, slots=True)
class Plan:
    """A model and its work on a cluster, worked out."""

    name: str
    """Of the way it is trained."""
    model: Model
    """What is trained."""
    setup: Setup
    """How."""
    work: Work
    """What a step asks for."""
    gpu: Accelerator
    """On what."""
    cluster: Cluster = field(default_factory=Cluster)
    """And how many."""

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
        """What does not fit, each with a way out; nothing if all does."""
        usable, room = self.gpu.memory * 1e9 * self.cluster.usable, self.memory
        states = room.weights + room.gradients + room.adam
        more = "more GPUs" if self.setup.sharded else "shard it, with verl"
        split = "a larger split" if self.setup.sharded else "a smaller pack"
        found = []
        if room.training > usable:
            way = more if states >= room.activations else split
            found.append(f"training lacks {(room.training - usable) / GIB:.1f} GiB a GPU ({way})")
        if self.work.at_once and room.sampling > usable:
            way = "a larger tensor" if room.cache < 0 else f"{more}, or a smaller share"
            found.append(f"sampling lacks {(room.sampling - usable) / GIB:.1f} GiB a GPU ({way})")
        if self.work.at_once and not self.fitting:
            found.append(f"no cache holds {self.work.reach:,} tokens (a larger share or tensor)")
        return found

    @property
    def verdict(self) -> str:
        """Whether it fits, and then what takes longest."""
        if self.lacks:
            return "does not fit: " + "; ".join(self.lacks)
        took = self.seconds
        assert took is not None, "a sequence fits"
        parts = {name: getattr(took, name) for name in ("prefill", "decoding", "training", "push")}
        longest = max(parts, key=parts.__getitem__)
        return f"fits; {longest} takes longest, {parts[longest] / took.step:.0%} of the step"
