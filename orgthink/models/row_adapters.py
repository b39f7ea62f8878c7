"""Adapters of several roles over one base: each row of a decoding batch uses its own.

The adapters of a layer are stacked to one whose rank is the sum of theirs. Each row keeps the ranks of its own adapter
and sets the others to 0: that takes as many operations as one adapter, in whatever order the rows come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from orgthink.models.decoder import Decoder
from orgthink.models.lora import Adapter, peft_name, spans_of

# Shapes: B rows, T tokens, R ranks of all adapters together.


class RowAdapters:
    """The adapters of a model that decodes."""

    @torch.no_grad()
    def __init__(self, model: Decoder, adapters: Mapping[str, Adapter]) -> None:
        """Put the adapters into the model's layers, in place of former ones. ValueError if they do not fit."""
        weight = model.norm.weight
        ranks = [one.settings.rank for one in adapters.values()]
        scales = [one.settings.alpha / one.settings.rank for one in adapters.values()]
        own = torch.block_diag(*(torch.full((1, rank), scale) for rank, scale in zip(ranks, scales, strict=True)))
        self._scales = torch.cat([torch.zeros(1, sum(ranks)), own]).to(weight)
        """[1 + adapters, R]: scale of each rank, for rows without an adapter and for those of each."""
        self.places = {name: place for place, name in enumerate([None, *adapters])}
        """Row of each adapter in that table."""
        self.scales_B11R = self._scales[:0, None, None]
        known: set[str] = set()
        for linear, parts in model.linears:
            linear.adapter = _Stack(self, parts, linear.weight, list(adapters.values()))
            known.update(peft_name(name, side) for name in parts for side in "AB")
        for name, one in adapters.items():
            if unknown := one.weights.keys() - known:
                raise ValueError(f"adapter {name}: {min(unknown)} has no place in the model")

    def choose(self, names: Sequence[str | None]) -> None:
        """The adapter of each row of the next pass."""
        places = torch.tensor([self.places[name] for name in names], device=self._scales.device)
        self.scales_B11R = self._scales[places][:, None, None]


class _Stack:
    """The adapters of one linear layer."""

    def __init__(
        self, rows: RowAdapters, parts: Mapping[str, int], weight: Tensor, adapters: Sequence[Adapter]
    ) -> None:
        self._rows, width = rows, weight.shape[1]
        names = [name for name in parts if any(peft_name(name, "A") in one.weights for one in adapters)]
        of_each = [(one, one.settings.rank) for one in adapters]
        down = [one.matrix(name, "A", (rank, width)) for name in names for one, rank in of_each]
        ups = [[one.matrix(name, "B", (parts[name], rank)) for one, rank in of_each] for name in names]
        self._down = torch.cat([weight[:0], *(each.to(weight) for each in down)])
        self._ups = [torch.cat([each.to(weight) for each in one], 1).T for one in ups]
        self._spans = spans_of(parts, names)

    def __call__(self, x: Tensor, output: Tensor) -> Tensor:
        """The output [B, T, rows] with the change of each row, given the input [B, T, width]. It is overwritten."""
        if self._ups:
            inner = F.linear(x, self._down).unflatten(-1, (len(self._ups), -1)) * self._rows.scales_B11R
            whole = output.view(-1, output.shape[-1])
            for span, part, up in zip(self._spans, inner.flatten(0, 1).unbind(1), self._ups, strict=True):
                whole[:, span].addmm_(part, up)
        return output
