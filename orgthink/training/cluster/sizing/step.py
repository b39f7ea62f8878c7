"""GPUs by their data sheets, and the share of these rates that is reached."""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.training.cluster.sizing.model import require_positive


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One GPU, by its data sheet. Rates are for dense matrices; the doubled rates with sparsity do not apply."""

    memory: float
    """GB of 10⁹ bytes; the driver has the rest of the card."""
    bf16: float
    """TFLOP/s of bfloat16 on tensor cores."""
    fp32: float
    """TFLOP/s of float32 without tensor cores."""
    bandwidth: float
    """Memory bandwidth in GB/s."""
    link: float
    """GB/s to other GPUs of its node, in one direction."""

    def __post_init__(self) -> None:
        require_positive(self)


ACCELERATORS = {
    "a100": Accelerator(memory=80, bf16=312, fp32=19.5, bandwidth=2039, link=300),
    "h100": Accelerator(memory=80, bf16=989, fp32=67, bandwidth=3350, link=450),
    "h200": Accelerator(memory=141, bf16=989, fp32=67, bandwidth=4800, link=450),
    "b200": Accelerator(memory=180, bf16=2250, fp32=75, bandwidth=7700, link=900),
    "l40s": Accelerator(memory=48, bf16=362, fp32=91.6, bandwidth=864, link=32),
}
"""SXM cards of 80 GB and more; the L40S sits on PCIe."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """GPUs, and the share of their data sheet that they reach: these shares are assumed, not measured."""

    gpus: int = 8
    """Number of GPUs."""
    node: int = 8
    """GPUs per node."""
    network: float = 50
    """GB/s of a GPU to other nodes, in one direction: 400 Gb/s."""
    usable: float = 0.92
    """Share of the memory for tensors; fragmentation and buffers of kernels and NCCL take the rest."""
    flops: float = 0.4
    """Share of the TFLOP/s that training and prefill reach."""
    streaming: float = 0.6
    """Share of the memory bandwidth that decoding reaches, and of the link bandwidth that collectives reach."""
    overhead: float = 0.005
    """Seconds of a decoding step outside its arithmetic: scheduling, launches, sampling."""

    def __post_init__(self) -> None:
        require_positive(self, "overhead")
        for name in ("usable", "flops", "streaming"):
            if getattr(self, name) > 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it is a share, at most 1")


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
    """Tokens of one forward pass on each GPU."""
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


PROMPT = 512
"""Default tokens of a prompt: the papers' templates have 25 to 600, and the problem is added."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a training step. Lengths are means over the trained agents; agents of frozen models do not count."""

    problems: int
    """Problems of a step."""
    group: int
    """G: attempts at each."""
    agents: int
    """Trained agents of an attempt: each is a sequence of its own."""
    concurrent: float
    """c: agents of an attempt that decode at the same time; 0 if nothing is sampled (supervised training)."""
    prompt: int
    """Tokens of an agent's prompt."""
    sampled: int
    """Tokens that an agent samples over all its rounds. Exactly these are trained."""
    injected: int = 0
    """Tokens injected between the rounds of an agent: results, observations."""
    chain: float = 1.0
    """Agents of an attempt that sample one after the other within a step, in units of the mean length."""
    longest: int = 0
    """Tokens of the longest context, which must also fit; 0 if all contexts are as long as the mean."""
    segments: int = 1
    """Steps over which an output is spread. Each step has new weights, so earlier tokens are read again."""

    def __post_init__(self) -> None:
        require_positive(self, "concurrent", "prompt", "injected", "longest")

    @property
    def sequences(self) -> int:
        """Trained sequences of a step: P·G·agents."""
        return self.problems * self.group * self.agents

    @property
    def length(self) -> int:
        """Tokens of an agent's whole context, on average."""
        return self.prompt + self.injected + self.sampled

    @property
    def reach(self) -> int:
        """Tokens of the longest context."""
        return max(self.longest, self.length)

    @property
    def path(self) -> float:
        """Critical path of an attempt within a step, in sampled tokens: chain·sampled."""
        return self.chain * self.sampled

    @property
    def prefilled(self) -> float:
        """Tokens that the sampler reads in a step: sequences·(s·prompt + injected + (s − 1)/2·sampled), s segments.

        Assumes that the prefix cache keeps everything between the rounds of a segment and nothing across weight
        updates. A prompt that G attempts share is counted G times.
        """
        again = self.segments * self.prompt + self.injected + (self.segments - 1) / 2 * self.sampled
        return self.sequences * again if self.concurrent else 0.0

    @property
    def decoded(self) -> int:
        """Tokens that the sampler generates in a step: sequences·sampled."""
        return self.sequences * self.sampled if self.concurrent else 0

    @property
    def trained(self) -> int:
        """Tokens with a gradient: sequences·sampled. Groups of equal rewards count as well."""
        return self.sequences * self.sampled

    @property
    def computed(self) -> int:
        """Tokens that the trainer computes: sequences·length. Packing of shared prefixes reduces them."""
        return self.sequences * self.length
