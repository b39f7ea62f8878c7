"""The setup of training and sampling: sharding, number formats, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.training.cluster.sizing.positive import require_positive


@dataclass(frozen=True, slots=True)
class Setup:
    """How training and sampling share the GPUs. The sampler's weights lie on the same GPUs as the trainer's."""

    sharded: bool = True
    """Whether weights, gradients and Adam states are sharded over all GPUs (FSDP, ZeRO-3)."""
    held: int = 4
    """Bytes of a trained parameter; its gradient and each of its two Adam states take as many."""
    computed: int = 2
    """Bytes of a number in the trainer's arithmetic: 2 is bfloat16, 4 is float32."""
    checkpointed: bool = True
    """Whether only layer inputs are stored for the backward pass, which computes each layer again."""
    pack: int = 16_384
    """Tokens of one forward pass on each GPU, or on each group of `split` GPUs."""
    split: int = 1
    """GPUs that share the tokens of one sequence in training (Ulysses)."""
    logits: int = 8
    """Peak bytes of each logit of a trained token: two arrays of bfloat16 and one of float32."""
    frozen: int = 0
    """Additional forward passes of training: for the reference policy, for log-probabilities of the old policy."""
    reference: int = 0
    """Bytes of a parameter of the reference policy; 0 without one."""
    sampler: int = 2
    """Bytes of a parameter of the sampler, and of a number in its cache."""
    share: float = 0.5
    """Share of a GPU's memory for weights and cache of the sampler (`gpu_memory_utilization`); 0 without sampling."""
    sleeps: bool = True
    """Whether the sampler releases its memory during training."""
    tensor: int = 1
    """GPUs that hold one copy of the sampler's weights (tensor parallelism)."""
    slots: int = 256
    """Most sequences that a copy decodes in one batch."""

    def __post_init__(self) -> None:
        require_positive(self, "sharded", "checkpointed", "sleeps", "frozen", "reference", "share")
        if self.share > 1:
            raise ValueError(f"share is {self.share}: it is a share of the memory, at most 1")
