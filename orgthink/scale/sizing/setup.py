"""How training and sampling are set up: what is sharded, how wide, what is kept."""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.scale.sizing.positive import require_positive


@dataclass(frozen=True, slots=True)
class Setup:
    """How training and sampling share the GPUs. The sampler's weights lie on the same GPUs as the trainer's."""

    sharded: bool = True
    """Whether weights, gradients and Adam's states are cut among all GPUs (FSDP, ZeRO-3)."""
    held: int = 4
    """Bytes of a parameter as it is trained; its gradient and both of Adam's states take as many each."""
    computed: int = 2
    """Bytes of a number in the trainer's arithmetic: 2 is bfloat16, 4 is float32."""
    checkpointed: bool = True
    """Whether only the inputs of layers are kept for the backward, and each layer is computed once more."""
    pack: int = 16_384
    """Tokens that are computed in one go on each GPU, or on each `split` of them."""
    split: int = 1
    """GPUs that share the tokens of one sequence in training (Ulysses)."""
    logits: int = 8
    """Bytes at once of each logit of a trained token: two arrays of bfloat16 and one of float32."""
    frozen: int = 0
    """Further forward passes that training takes: for a reference policy, for log-probabilities of the old one."""
    reference: int = 0
    """Bytes of a parameter of the reference policy; 0 without one."""
    sampler: int = 2
    """Bytes of a parameter, and of a number in the cache, of the sampler."""
    share: float = 0.5
    """Of a GPU's memory, for the sampler's weights and cache (`gpu_memory_utilization`); 0 if nothing is sampled."""
    sleeps: bool = True
    """Whether the sampler gives its memory back while the trainer works."""
    tensor: int = 1
    """GPUs that hold one copy of the sampler's weights (tensor parallelism)."""
    slots: int = 256
    """Sequences that a copy decodes at once, at most."""

    def __post_init__(self) -> None:
        require_positive(self, "sharded", "checkpointed", "sleeps", "frozen", "reference", "share")
        if self.share > 1:
            raise ValueError(f"share is {self.share}: it is a share of the memory, at most 1")
