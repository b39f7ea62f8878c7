"""Whether a training step fits on a cluster: GPUs, how a model is trained, the work of a step, memory and seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from orgthink.training.cluster.sizing.model import Model

GIB = 2**30
SLOTS = 256
"""Most sequences that a copy of the sampler decodes in one batch."""


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


@dataclass(frozen=True, slots=True)
class Setup:
    """How training and sampling share the GPUs. The sampler's weights lie on the same GPUs as the trainer's."""

    sharded: bool = True
    """verl and torchrun: weights, gradients and Adam states are sharded over all GPUs (FSDP, ZeRO-3), and the sampler
    releases its memory during training. `False`: one GPU does none of this."""
    checkpointing: bool = True
    """Gradient checkpointing: only layer inputs are stored for the backward pass, which computes each layer again."""
    held: int = 4
    """Bytes of a trained parameter; its gradient and each of its two Adam states take as many."""
    computed: int = 2
    """Bytes of a number in the trainer's arithmetic: 2 is bfloat16, 4 is float32."""
    pack: int = 16_384
    """Tokens of one forward pass, on the `split` GPUs that share it."""
    split: int = 1
    """GPUs that share the tokens of a row (sequence parallelism; verl's `ulysses_sequence_parallel_size`)."""
    logits: int = 8
    """Peak bytes of each logit of a trained token: two arrays of bfloat16 and one of float32; 0 if they are computed in
    parts."""
    frozen: int = 0
    """Additional forward passes of training: for the reference policy, for log-probabilities of the old policy."""
    reference: int = 0
    """Bytes of a parameter of the reference policy; 0 without one."""
    sampler: int = 2
    """Bytes of a parameter of the sampler, and of a number in its cache."""
    share: float = 0.5
    """Share of a GPU's memory for weights and cache of the sampler (`gpu_memory_utilization`); 0 without sampling."""
    tensor: int = 1
    """GPUs that hold one copy of the sampler's weights (tensor parallelism)."""


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


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one GPU."""

    weights: float
    """Trained parameters."""
    gradients: float
    """Of all parameters."""
    adam: float
    """First and second moments."""
    reference: float
    """Parameters of the reference policy of the KL term."""
    gathered: float
    """Weights that are gathered from shards, or copied to another width, at one time."""
    activations: float
    """Activations that the backward pass of a pack needs, logits included."""
    sampler: float
    """Weights of the sampler."""
    cache: float
    """Keys and values; below 0 if the weights alone exceed the sampler's share."""
    released: bool
    """Whether sampler and cache are released during training."""

    @property
    def training(self) -> float:
        """Total during training."""
        sampler = 0.0 if self.released else self.sampler + max(0.0, self.cache)
        return self.weights + self.gradients + self.adam + self.reference + self.gathered + self.activations + sampler

    @property
    def sampling(self) -> float:
        """Total during sampling: weights and Adam states of the trainer stay, gradients are released."""
        return self.weights + self.adam + self.reference + self.sampler + max(0.0, self.cache)


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds of the parts of a step, which follow each other."""

    prefill: float
    """Reading of prompts and injected tokens."""
    decoding: float
    """Sampling."""
    training: float
    """Forward and backward of all minibatches."""
    push: float
    """Transfer of new weights to the sampler."""

    @property
    def step(self) -> float:
        """The whole step: sampling and training alternate."""
        return self.prefill + self.decoding + self.training + self.push


@dataclass(frozen=True, slots=True)
class Plan:
    """Memory and time of a model's training step on a cluster."""

    name: str
    """Name of the trainer: `embedded`, `torchrun` or `verl`."""
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

    @property
    def shards(self) -> int:
        """n: GPUs that share the states of the training."""
        return self.cluster.gpus if self.setup.sharded else 1

    @property
    def memory(self) -> Memory:
        """Memory of each GPU.

        Weights, gradients, Adam: total·held·(1, 1, 2)/n. Gathered at the computed width: two of the largest layers of
        sharded weights; without shards or checkpointing all weights, if they are held at another width (autocast).
        Activations, for t = max(pack, longest context)/split tokens: layers·t·(bytes of a layer); if only inputs of
        layers are stored, layers·t·C·width and one layer. Logits: t·V·(bytes of a logit), as if all were trained.
        """
        model, setup = self.model, self.setup
        tokens = math.ceil(max(setup.pack, self.work.reach) / setup.split)
        layer = tokens * model.activation_bytes(setup.computed)
        inputs = tokens * model.layers * model.hidden * setup.computed
        held = model.total * setup.held / self.shards
        copy = model.total * setup.sampler / setup.tensor if setup.share else 0.0
        copied = setup.computed != setup.held and not (setup.sharded and setup.checkpointing)
        gathered = model.total if copied else 2 * model.largest if self.shards > 1 else 0
        return Memory(
            weights=held,
            gradients=held,
            adam=2 * held,
            reference=model.total * setup.reference / self.shards,
            gathered=float(gathered * setup.computed),
            activations=(inputs + layer if setup.checkpointing else model.layers * layer)
            + tokens * model.vocab * setup.logits,
            sampler=copy,
            cache=setup.share * self.gpu.memory * 1e9 - copy,
            released=setup.sharded,
        )

    @property
    def fitting(self) -> int:
        """Sequences of mean length that all caches together hold: copies·⌊cache/(length·bytes of a token)⌋.

        0 if a cache does not hold the longest sequence. Assumes that sequences share no prefix: with a prefix cache, a
        prompt is stored once for all its attempts.
        """
        tokens = int(self.memory.cache // self.model.kv_bytes(self.setup.sampler, self.setup.tensor))
        return 0 if tokens < self.work.reach else self.cluster.gpus // self.setup.tensor * (tokens // self.work.length)

    @property
    def seconds(self) -> Seconds | None:
        """Seconds of a step, without frozen models and tools; `None` if the sampler cannot hold a sequence."""
        sampled = self.work.concurrent > 0
        if sampled and not self.fitting:
            return None
        return Seconds(
            prefill=self.work.prefilled * self._flops / (self.cluster.gpus * self._rate(2)),
            decoding=self._decoding() if sampled else 0.0,
            training=self._training(),
            push=self._push() if sampled else 0.0,
        )

    @property
    def _flops(self) -> float:
        """Forward operations of a token, at half a context: 2·multiplied, and 4·layers·H·D·seen of its attention."""
        model, seen = self.model, self.work.length / 2
        return 2 * model.multiplied + 4 * model.layers * model.heads * model.head_dim * seen

    def _rate(self, width: int) -> float:
        """Operations per second that a GPU reaches with numbers of this width."""
        return (self.gpu.bf16 if width == 2 else self.gpu.fp32) * 1e12 * self.cluster.flops

    @property
    def _bandwidth(self) -> float:
        """Bytes per second of memory that a GPU reaches."""
        return self.gpu.bandwidth * 1e9 * self.cluster.streaming

    @property
    def _link(self) -> float:
        """Bytes per second of a collective of all GPUs: the network limits it if there are several nodes."""
        link = self.gpu.link if self.cluster.gpus <= self.cluster.node else self.cluster.network
        return link * 1e9 * self.cluster.streaming

    def _decoding(self) -> float:
        """Steps·(seconds of a step), for each of n/tensor copies.

        Steps: max(path, tokens decoded by a copy/largest batch). The work, the cache and `SLOTS` bound the batch.
        Seconds: overhead + max(bytes read/bandwidth, operations/rate), at the mean number of sequences. A step reads
        the weights once, and for each sequence the keys and values of half its length. Tensor parallelism is assumed to
        scale perfectly.
        """
        setup, work = self.setup, self.work
        copies = self.cluster.gpus / setup.tensor
        most = min(work.problems * work.group * work.concurrent, self.fitting, copies * SLOTS) / copies
        decoded = work.decoded / copies
        steps = max(work.path, decoded / most)
        sequences = decoded / steps
        cached = sequences * work.length / 2 * self.model.kv_bytes(setup.sampler, setup.tensor)
        read = self.model.read(sequences) * setup.sampler / setup.tensor + cached
        arithmetic = sequences * self._flops / setup.tensor / self._rate(2)
        return steps * (self.cluster.overhead + max(read / self._bandwidth, arithmetic))

    def _training(self) -> float:
        """max(arithmetic, collectives).

        Arithmetic: computed·operations·(3, or 4 if layers are computed again, and frozen passes)/(n·rate). Collectives,
        for each pack: weights are gathered for every forward and for the backward, and gradients are scattered in
        float32; (n − 1)/n of these bytes pass the slowest link. The optimizer step is omitted.
        """
        setup, work, n = self.setup, self.work, self.shards
        passes = 3 + setup.checkpointing + setup.frozen
        packs = math.ceil(work.computed * setup.split / (n * max(setup.pack, work.reach)))
        moved = self.model.total * (setup.computed * (2 + setup.frozen) + 4) * (n - 1) / n
        return max(work.computed * self._flops * passes / (n * self._rate(setup.computed)), packs * moved / self._link)

    def _push(self) -> float:
        """Gather of the other shards over the slowest link, total·sampler·(n − 1)/n, and write of a part of a copy."""
        whole, n = self.model.total * self.setup.sampler, self.shards
        return whole * (n - 1) / n / self._link + whole / self.setup.tensor / self._bandwidth

    @property
    def lacks(self) -> list[str]:
        """What does not fit, each with a remedy; empty if everything fits."""
        usable, memory = self.gpu.memory * 1e9 * self.cluster.usable, self.memory
        found = []
        if (more := memory.training - usable) > 0:
            found.append(
                f"training lacks {more / GIB:.1f} GiB a GPU (more GPUs or split, a smaller pack, shorter rows)"
            )
        if self.work.concurrent and (more := memory.sampling - usable) > 0:
            found.append(f"sampling lacks {more / GIB:.1f} GiB a GPU (more GPUs, or a smaller share)")
        if self.work.concurrent and not self.fitting:
            found.append(f"no cache holds {self.work.reach:,} tokens (a larger share or tensor)")
        return found

    @property
    def verdict(self) -> str:
        """Whether it fits."""
        return "does not fit: " + "; ".join(self.lacks) if self.lacks else "fits"
