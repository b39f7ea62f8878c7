"""What reinforcement learning asks of whatever holds the weights, and the embedded answer: one process.

The protocol is modelled on Tinker's: sample · logprobs · forward_backward · optim_step · sync_sampler · save · load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from orgthink.engines.engine import Engine, Updatable
from orgthink.errors import UserError
from orgthink.training import checkpoint
from orgthink.training.losses import gradient_norm
from orgthink.training.models import Trainable, copy_companions
from orgthink.training.packing import Pack, packs
from orgthink.training.policy_loss import PolicyLoss, per_row_log_ratio, token_losses
from orgthink.training.rows import PolicyRow

# Shapes: T tokens of a pack, N trained tokens of its rows, V vocabulary.


@dataclass(frozen=True, slots=True)
class Signals:
    """What a pass over rows measured, as sums over their trained tokens unless said otherwise; `+` adds two."""

    loss: float = 0.0
    """Weighted as the gradient is."""
    tokens: int = 0
    """Trained tokens."""
    computed: int = 0
    """Tokens that were computed, prompts included: those of shared beginnings once."""
    entropy: float = 0.0
    """Of the policy, in nats."""
    clipped: int = 0
    """Tokens that are not stale and whose ratio, or their row's, lay outside the clip range."""
    fresh: int = 0
    """Tokens that the newest weights sampled."""
    stale: int = 0
    """Tokens past the bound of staleness."""
    difference: float = 0.0
    """|log-probability now - log-probability when sampled| of fresh tokens: that of others is no drift."""
    largest: float = 0.0
    """Largest of those differences."""
    where: str = ""
    """Episode and agent of the largest difference."""
    kl: float = 0.0
    """Divergence from the reference, if there is one."""
    apart: float = 0.0
    """|log of the importance ratio| of fresh tokens, or of that of their rows: before the first update it is what the
    old policy is off by."""

    def __add__(self, other: Signals) -> Signals:
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Signals) if f.name != "where"}
        worse = max(self, other, key=lambda signals: signals.largest)
        return Signals(**sums | {"largest": worse.largest}, where=worse.where)


@dataclass(frozen=True, slots=True)
class Tokens:
    """What is known of the N trained tokens of some rows, row by row, before they are computed."""

    sampled_N: Tensor
    """Log-probabilities with which they were drawn."""
    old_N: Tensor
    """Those that importance ratios of fresh tokens are relative to."""
    age_N: Tensor
    """How many updates of the sampler ago they were drawn."""
    advantages_N: Tensor
    """Of their episodes."""
    weights_N: Tensor
    """In the loss."""
    lengths: Sequence[int]
    """How many each row has."""
    names: Sequence[str]
    """What errors call each row."""

    def row(self, place: int) -> str:
        """The name of the row of a token."""
        return next(name for name, end in zip(self.names, accumulate(self.lengths), strict=True) if place < end)


def assess(
    tokens: Tokens, loss: PolicyLoss, logprobs_N: Tensor, entropy_N: Tensor, reference_N: Tensor | None = None
) -> tuple[Tensor, Signals]:
    """The loss of tokens with these log-probabilities now, to derive, and what they say, but for what was computed.

    UserError if a log-probability is not a number.
    """
    fresh_N, stale_N = tokens.age_N == 0, tokens.age_N > loss.staleness.bound
    old_N, lengths = tokens.old_N.where(fresh_N, tokens.sampled_N), tokens.lengths
    if loss.old == "pois":
        old_N, stale_N = tokens.old_N, torch.zeros_like(stale_N)
    losses_N, clipped_N = token_losses(logprobs_N, old_N, tokens.advantages_N, loss, reference_N, stale_N, lengths)
    result = (losses_N * tokens.weights_N).sum()
    difference_N = (logprobs_N.detach() - tokens.sampled_N).abs()
    log_ratio_N = logprobs_N.detach() - old_N
    if not (difference_N.isfinite() & log_ratio_N.exp().isfinite()).all():
        worst = tokens.row(int(difference_N.nan_to_num(nan=torch.inf).argmax()))
        raise UserError(f"{worst}: a log-probability is not a number, or its ratio to the sampler's")
    drift_N = difference_N.where(fresh_N, 0.0)
    away_N = torch.zeros(()) if reference_N is None else reference_N - logprobs_N.detach()
    return result, Signals(
        loss=result.item(),
        tokens=len(logprobs_N),
        entropy=entropy_N.sum().item(),
        clipped=int(clipped_N.sum()),
        fresh=int(fresh_N.sum()),
        stale=int(stale_N.sum()),
        difference=drift_N.sum().item(),
        largest=drift_N.max().item(),
        where=tokens.row(int(drift_N.argmax())),
        kl=(away_N.exp() - away_N - 1).sum().item(),
        apart=per_row_log_ratio(log_ratio_N.where(fresh_N, 0.0), loss, lengths).abs().where(fresh_N, 0.0).sum().item(),
    )


class PolicyBackend(Protocol):
    """Holds the policy's weights and samples from them."""

    @property
    def sampler(self) -> Engine:
        """Samples with the weights of the last `sync_sampler`: organizations run on it."""
        ...

    def logprobs(self, rows: Sequence[PolicyRow]) -> list[tuple[float, ...]]:
        """Of the tokens of each row under the weights as they are now; 0 where nothing is trained."""
        ...

    def forward_backward(self, rows: Sequence[PolicyRow], loss: PolicyLoss) -> Signals:
        """Add the gradient of the loss of rows, which know their weights.

        UserError if a log-probability or the gradient is not a number.
        """
        ...

    def optim_step(self, learning_rate: float, clip: float) -> float:
        """Take a step along the gradient, clipped to a norm, and clear it; the norm before clipping."""
        ...

    async def sync_sampler(self, version: str) -> None:
        """Let the sampler decode with the weights as they are now."""
        ...

    def save(self, folder: Path) -> None:
        """Write the model as a Hugging Face folder in `folder/model`, and beside it what resuming needs."""
        ...

    def load(self, folder: Path) -> None:
        """Put back what `save` wrote. UserError that names the folder if it is torn or another model's."""
        ...


class EmbeddedBackend:
    """Model, optimizer and sampler in this process."""

    def __init__(
        self,
        model: Trainable,
        sampler: Updatable,
        base: Path,
        *,
        pack_tokens: int = 512,
        reference: Trainable | None = None,
    ) -> None:
        """`base` is the folder the model came from, whose other files go with it. `pack_tokens` is the size of the
        packs that are computed in one go, `reference` a policy not to diverge from."""
        self._model, self._sampler, self._base, self._pack_tokens = model, sampler, base, pack_tokens
        self._reference = reference
        self._parameters = list(model.parameters())
        self._optimizer = torch.optim.AdamW(self._parameters, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0, fused=True)

    @property
    def sampler(self) -> Updatable:
        return self._sampler

    @torch.no_grad()
    def logprobs(self, rows: Sequence[PolicyRow]) -> list[tuple[float, ...]]:
        found: list[tuple[float, ...]] = [()] * len(rows)
        for pack in packs(rows, self._pack_tokens):
            temperature_N = pack.spread([row.temperature for row in pack.rows]).to(self._parameters[0].device)
            trained = iter(token_logprobs(self._model, pack, temperature_N)[0].tolist())
            for place, row in zip(pack.places, pack.rows, strict=True):
                found[place] = tuple(next(trained) if on else 0.0 for on in row.trained)
        return found

    def forward_backward(self, rows: Sequence[PolicyRow], loss: PolicyLoss) -> Signals:
        return sum((self._pass(pack, loss) for pack in packs(rows, self._pack_tokens)), Signals())

    def _pass(self, pack: Pack[PolicyRow], loss: PolicyLoss) -> Signals:
        """Forward and backward of one pack."""
        device = self._parameters[0].device
        sampled_N = _trained(pack, [row.logprobs for row in pack.rows]).to(device)
        old_N = _trained(pack, [row.old or row.logprobs for row in pack.rows]).to(device)
        age_N = _trained(pack, [row.age for row in pack.rows]).to(device)
        weights_N = pack.spread([row.weight for row in pack.rows]).to(device)
        advantages_N = pack.spread([row.advantage for row in pack.rows]).to(device)
        temperature_N = pack.spread([row.temperature for row in pack.rows]).to(device)
        logprobs_N, entropy_N = token_logprobs(self._model, pack, temperature_N)
        reference_N = None
        if self._reference is not None:
            with torch.no_grad():
                reference_N, _ = token_logprobs(self._reference, pack, temperature_N)
        lengths = [sum(row.trained[1:]) for row in pack.rows]
        tokens = Tokens(sampled_N, old_N, age_N, advantages_N, weights_N, lengths, [row.name for row in pack.rows])
        result, signals = assess(tokens, loss, logprobs_N, entropy_N, reference_N)
        result.backward()
        return replace(signals, computed=len(pack.ids))

    def optim_step(self, learning_rate: float, clip: float) -> float:
        norm = gradient_norm(self._parameters, clip)
        if norm != norm or norm == float("inf"):
            raise UserError(f"the gradient's norm is {norm}: lower the learning rate, or look at the rewards")
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self._optimizer.zero_grad()
        return norm

    async def sync_sampler(self, version: str) -> None:
        await self._sampler.update_weights(self._model.to_hf(), version)

    def save(self, folder: Path) -> None:
        copy_companions(self._base, folder / "model")
        checkpoint.store(folder, self._model, self._optimizer)

    def load(self, folder: Path) -> None:
        checkpoint.load(folder, self._model, self._optimizer)


def _trained(pack: Pack[PolicyRow], values: Sequence[Sequence[float]]) -> Tensor:
    """[N]: of the values of each row, one a token, those of its trained tokens."""
    each = zip(pack.rows, values, strict=True)
    return torch.tensor([v for row, of in each for v, trained in zip(of, row.trained, strict=True) if trained])


def token_logprobs(model: Trainable, pack: Pack[PolicyRow], temperature_N: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of each trained token of a pack at its temperature, and the policy's entropy there: [N], [N].

    Only the log-probabilities carry a gradient. Logits are computed once for tokens that several rows share.
    """
    device = temperature_N.device
    hidden = model.hidden(pack.ids[None].to(device), pack.positions[None].to(device), pack.mask[None].to(device))[0]
    places, which = pack.before.to(device).unique(return_inverse=True)
    logits = model.logits(hidden[places]).float()
    if (temperature_N == temperature_N[0]).all():
        distribution = torch.log_softmax(logits / temperature_N[0], -1)
        with torch.no_grad():
            entropy = -(distribution.exp() * distribution).sum(-1)[which]
        return distribution[which, pack.targets.to(device)], entropy
    distribution = torch.log_softmax(logits[which] / temperature_N[:, None], -1)
    with torch.no_grad():
        entropy = -(distribution.exp() * distribution).sum(-1)
    return distribution.gather(1, pack.targets.to(device)[:, None])[:, 0], entropy
