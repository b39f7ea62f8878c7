"""Log-probabilities of the trained tokens of a pack, and the policy's entropy there, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from orgthink.models.trainable import Trainable
from orgthink.training.packing import Pack

# Shapes: N trained tokens of a pack's rows, P different predictions for them, V vocabulary.

PREDICTIONS = 2048
"""Largest number of predictions whose logits are kept: 1.2 GB with a vocabulary of 150,000. The logits of more are
computed by and by, and again in the backward pass."""


def token_logprobs(model: Trainable, pack: Pack, temperatures: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Log-probability of each trained token of a pack and entropy of the policy at that token: [N], [N].

    Both are computed at the temperature of the token's row. Only the log-probabilities carry a gradient. Logits of a
    prefix that rows of one temperature share are computed once.
    """
    device = model.device
    hidden = model.hidden(pack.ids[None].to(device), pack.positions[None].to(device), pack.rectangles)[0]
    different, kind_N = pack.spread(temperatures).unique(return_inverse=True)
    predictions_P, which_N = (pack.before * len(different) + kind_N).unique(return_inverse=True)
    hidden_PC = hidden.index_select(0, (predictions_P // len(different)).to(device))
    temperatures_P = different[predictions_P % len(different)].to(device)
    tokens_P, order_N = which_N.bincount().split(PREDICTIONS), which_N.argsort(stable=True)
    targets = pack.targets[order_N].to(device).split([int(tokens.sum()) for tokens in tokens_P])

    def predict(hidden: Tensor, temperatures: Tensor, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        which = torch.arange(len(tokens)).repeat_interleave(tokens).to(device)
        return _Predicted.apply(model.logits(hidden).float(), temperatures, which, targets)

    parts = zip(hidden_PC.split(PREDICTIONS), temperatures_P.split(PREDICTIONS), tokens_P, targets, strict=True)
    if len(tokens_P) == 1:
        found = [predict(*part) for part in parts]
    else:
        found = [checkpoint(predict, *part, use_reentrant=False, preserve_rng_state=False) for part in parts]
    logprobs, entropies = (torch.cat(values) for values in zip(*found, strict=True))
    return logprobs[order_N.argsort().to(device)], entropies[which_N.to(device)]


class _Predicted(torch.autograd.Function):
    """Log-probability of each token, and the entropy of each prediction. It keeps one tensor of the logits' size."""

    @staticmethod
    def forward(
        ctx: Any, logits_PV: Tensor, temperatures_P: Tensor, which_N: Tensor, targets_N: Tensor
    ) -> tuple[Tensor, Tensor]:
        distribution = torch.log_softmax(logits_PV / temperatures_P[:, None], -1)
        logprobs_N, probabilities = distribution[which_N, targets_N], distribution.exp()
        entropies_P = -torch.linalg.vecdot(probabilities, distribution)
        ctx.save_for_backward(probabilities, temperatures_P, which_N, targets_N)
        ctx.mark_non_differentiable(entropies_P)
        return logprobs_N, entropies_P

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """A logit gains what its own tokens gain, less its probability's share of what all tokens do."""
        probabilities, temperatures_P, which_N, targets_N = ctx.saved_tensors
        gradient_N = gradients[0] / temperatures_P[which_N]
        of_all_P = torch.zeros_like(temperatures_P).index_add_(0, which_N, gradient_N)
        of_logits = probabilities * -of_all_P[:, None]
        return of_logits.index_put_((which_N, targets_N), gradient_N, accumulate=True), None, None, None
