"""The protocol of policy backends, which hold the weights during reinforcement learning, and the in-process backend.

The protocol is modelled on Tinker's: sample · logprobs · forward_backward · optim_step · sync_sampler · save · load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from orgthink.engines.engine import Engine
from orgthink.models.decoder import Decoder
from orgthink.models.model_files import ModelFiles
from orgthink.models.trainable import Trainable, say_made_for
from orgthink.training import checkpoint
from orgthink.training.gradients import Accumulator, gradient_norm
from orgthink.training.packing import Pack, most_tokens, packs, token_logprobs
from orgthink.training.policy_loss import PolicyLoss, per_row_log_ratio, token_losses
from orgthink.training.rows import PolicyRow
from orgthink.util.errors import UserError

# Shapes: N trained tokens of the rows of a pack.


@dataclass(frozen=True, slots=True)
class Signals:
    """Measurements of a pass over rows. Token values are sums over the trained tokens. `+` combines two passes."""

    loss: float = 0.0
    """Loss, with the weights of the gradient."""
    tokens: int = 0
    """Number of trained tokens."""
    computed: int = 0
    """Number of computed tokens, prompts included. A shared prefix counts once."""
    entropy: float = 0.0
    """Entropy of the policy, in nats."""
    clipped: int = 0
    """Number of tokens whose importance ratio (of token or row) is outside the clip range."""
    fresh: int = 0
    """Number of tokens that the newest weights sampled."""
    difference: float = 0.0
    """|log-probability now - log-probability when sampled| of fresh tokens. Other tokens differ without any drift."""
    largest: float = 0.0
    """Largest of these differences."""
    where: str = ""
    """Episode and agent of the largest difference."""
    kl: float = 0.0
    """Divergence from the reference policy; 0 without one."""
    apart: float = 0.0
    """|log of the importance ratio| of fresh tokens, with the ratio of the token or of its row. Before the first
    update it measures the error of the old log-probabilities."""

    def __add__(self, other: Signals) -> Signals:
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Signals) if f.name != "where"}
        worse = max(self, other, key=lambda signals: signals.largest)
        return Signals(**sums | {"largest": worse.largest}, where=worse.where)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Inputs of the loss for the N trained tokens of some rows, row by row."""

    sampled_N: Tensor
    """Log-probability of each token under the policy that sampled it."""
    old_N: Tensor
    """Log-probability in the denominator of the importance ratio of a fresh token."""
    age_N: Tensor
    """Number of updates of the sampler since the token was sampled."""
    advantages_N: Tensor
    """Advantage of the token's episode."""
    weights_N: Tensor
    """Weight of the token in the loss."""
    lengths: Sequence[int]
    """Number of trained tokens of each row."""
    names: Sequence[str]
    """Name of each row in error messages."""

    def row(self, place: int) -> str:
        """The name of the row that contains token `place`."""
        return next(name for name, end in zip(self.names, accumulate(self.lengths), strict=True) if place < end)


def assess(
    tokens: Tokens, loss: PolicyLoss, logprobs_N: Tensor, entropy_N: Tensor, reference_N: Tensor | None = None
) -> tuple[Tensor, Signals]:
    """The loss of tokens with these current log-probabilities, with a gradient, and all signals except `computed`.

    All tensors are [N]. `reference_N` are the log-probabilities under the reference policy. UserError that names the
    row if a log-probability or an importance ratio is not finite.
    """
    fresh_N, lengths = tokens.age_N == 0, tokens.lengths
    old_N = tokens.old_N if loss.old == "pois" else tokens.old_N.where(fresh_N, tokens.sampled_N)
    losses_N, clipped_N = token_losses(logprobs_N, old_N, tokens.advantages_N, loss, reference_N, lengths)
    result = (losses_N * tokens.weights_N).sum()
    difference_N = (logprobs_N.detach() - tokens.sampled_N).abs()
    log_ratio_N = logprobs_N.detach() - old_N
    if not (difference_N.isfinite() & log_ratio_N.exp().isfinite()).all():
        worst = tokens.row(int(difference_N.nan_to_num(nan=torch.inf).argmax()))
        raise UserError(f"{worst}: a log-probability is not a number, or its importance ratio is not finite")
    drift_N = difference_N.where(fresh_N, 0.0)
    reference_ratio_N = torch.zeros(()) if reference_N is None else reference_N - logprobs_N.detach()
    return result, Signals(
        loss=result.item(),
        tokens=len(logprobs_N),
        entropy=entropy_N.sum().item(),
        clipped=int(clipped_N.sum()),
        fresh=int(fresh_N.sum()),
        difference=drift_N.sum().item(),
        largest=drift_N.max().item(),
        where=tokens.row(int(drift_N.argmax())),
        kl=(reference_ratio_N.exp() - reference_ratio_N - 1).sum().item(),
        apart=per_row_log_ratio(log_ratio_N.where(fresh_N, 0.0), loss, lengths).abs().where(fresh_N, 0.0).sum().item(),
    )


class Weights(Protocol):
    """Holds the weights of a training, and an engine that samples from them."""

    @property
    def sampler(self) -> Engine:
        """Engine with the weights of the last `sync_sampler`. Organizations run on it."""

    async def sync_sampler(self, version: str) -> None:
        """Copy the current weights to the sampler. `version` is recorded with every span that they sample."""

    def save(self, folder: Path) -> None:
        """Write the model as a Hugging Face folder to `folder/model`, and the trainer's state next to it."""

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote. UserError that names the folder if it is incomplete or of another model."""


class PolicyBackend(Weights, Protocol):
    """Computes log-probabilities and gradients, too."""

    def logprobs(self, rows: Sequence[PolicyRow]) -> list[tuple[float, ...]]:
        """Log-probability of each token of each row under the current weights; 0 for untrained tokens."""

    def forward_backward(self, rows: Sequence[PolicyRow], loss: PolicyLoss) -> Signals:
        """Add the gradient of the loss of these rows, each with the weight in `PolicyRow.weight`.

        UserError if a log-probability is not a number.
        """

    def optim_step(self, learning_rate: float, clip: float) -> float:
        """Take an optimizer step with the gradient clipped to the norm `clip`, and clear the gradient.

        Returns the norm before clipping. UserError if it is not finite.
        """


class EmbeddedBackend:
    """Model, optimizer and sampler in this process."""

    def __init__(
        self,
        model: Trainable,
        sampler: Engine,
        base: Path,
        *,
        pack_tokens: int = 1024,
        reference: Trainable | None = None,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        """`base` is the folder of the initial model: `save` copies its other files, such as the tokenizer, and adds the
        arguments `template` of the chat template.

        `pack_tokens` is the largest number of tokens in a forward pass. `reference` is the policy of the KL penalty.
        """
        self._model, self.sampler, self._pack_tokens = model, sampler, most_tokens(model, pack_tokens)
        self._roles = model.roles if isinstance(model, Decoder) else ()
        self._gradients = Accumulator(model)
        self._model_files = ModelFiles(base, template)
        self._reference = reference
        self._parameters = list(model.parameters())
        self._optimizer = torch.optim.AdamW(self._parameters, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0, fused=True)

    @torch.no_grad()
    def logprobs(self, rows: Sequence[PolicyRow]) -> list[tuple[float, ...]]:
        found: list[tuple[float, ...]] = [()] * len(rows)
        for pack in packs(rows, self._pack_tokens, 1, self._adapter):
            trained = iter(self._token_logprobs(self._model, pack)[0].tolist())
            for place, row in zip(pack.places, pack.rows, strict=True):
                found[place] = tuple(next(trained) if on else 0.0 for on in row.trained)
        return found

    def forward_backward(self, rows: Sequence[PolicyRow], loss: PolicyLoss) -> Signals:
        parts = packs(rows, self._pack_tokens, self._gradients.workers, self._adapter)
        return sum(self._gradients.add(parts, partial(self._loss, loss)), Signals())

    def _adapter(self, row: PolicyRow) -> str:
        """The role whose adapter sampled the row; empty if all rows have the same weights."""
        if self._roles and row.role not in self._roles:
            raise UserError(f"{row.name}: role {row.role} has no adapter, only {', '.join(self._roles)}")
        return row.role if self._roles else ""

    def _loss(self, loss: PolicyLoss, model: Trainable, pack: Pack[PolicyRow]) -> tuple[Tensor, Signals]:
        """The loss of one pack, with a gradient, and its measurements."""
        device = self._parameters[0].device
        sampled_N = _trained(pack, [row.logprobs for row in pack.rows]).to(device)
        old_N = _trained(pack, [row.old or row.logprobs for row in pack.rows]).to(device)
        age_N = _trained(pack, [row.age for row in pack.rows]).to(device)
        weights_N = pack.spread([row.weight for row in pack.rows]).to(device)
        advantages_N = pack.spread([row.advantage for row in pack.rows]).to(device)
        logprobs_N, entropy_N = self._token_logprobs(model, pack)
        reference_N = None
        if self._reference is not None:
            with torch.no_grad():
                reference_N, _ = self._token_logprobs(self._reference, pack)
        lengths = [sum(row.trained[1:]) for row in pack.rows]
        tokens = Tokens(sampled_N, old_N, age_N, advantages_N, weights_N, lengths, [row.name for row in pack.rows])
        result, signals = assess(tokens, loss, logprobs_N, entropy_N, reference_N)
        return result, replace(signals, computed=len(pack.ids))

    def _token_logprobs(self, model: Trainable, pack: Pack[PolicyRow]) -> tuple[Tensor, Tensor]:
        if self._roles and isinstance(model, Decoder):
            model.use(self._adapter(pack.rows[0]))
        return token_logprobs(model, pack, [row.temperature for row in pack.rows])

    def optim_step(self, learning_rate: float, clip: float) -> float:
        norm = gradient_norm(self._parameters, clip)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self._optimizer.zero_grad()
        return norm

    async def sync_sampler(self, version: str) -> None:
        if isinstance(self._model, Decoder) and self._roles:
            await self.sampler.update_adapters(self._model.role_adapters, version)
        else:
            await self.sampler.update_weights(self._model.to_hf(), version)

    def save(self, folder: Path) -> None:
        self._model_files.write(folder / "model")
        if self._roles:
            say_made_for(folder / "model", {"adapters": {role: role for role in self._roles}})
        checkpoint.store(folder, self._model, self._optimizer)

    def load(self, folder: Path) -> None:
        checkpoint.load(folder, self._model, self._optimizer)


def _trained(pack: Pack[PolicyRow], values: Sequence[Sequence[float]]) -> Tensor:
    """[N]: the values of trained tokens. `values` has one sequence for each row, with one value for each token."""
    rows = zip(pack.rows, values, strict=True)
    return torch.tensor([v for row, own in rows for v, trained in zip(own, row.trained, strict=True) if trained])
