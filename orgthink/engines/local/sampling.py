"""Drawing tokens for a batch in which every row has its own settings, without a loop over the rows.

One uniform number determines a token. It depends only on the request's seed and on the number of its sampled tokens, so
a request draws the same tokens in any batch.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from orgthink.engines.engine import GAMMA
from orgthink.models.tokenizer import Tokenizer

COLDEST = 1e-30
"""A lower temperature is greedy: logits divided by it would not be finite, and would end the whole batch."""

# Shapes: B rows, V vocabulary.


def uniforms(seeds_B: np.ndarray, counts_B: np.ndarray) -> Tensor:
    """Number `count` of each seed, in [0, 1), by splitmix64, which can jump to any position."""
    with np.errstate(over="ignore"):
        x = seeds_B + (counts_B + np.uint64(1)) * np.uint64(GAMMA)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return torch.from_numpy((x >> np.uint64(11)) * 2.0**-53)


def draw(logits_BV: Tensor, temperature_B: Tensor, top_p_B: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Ids and their log-probabilities under the sampling distribution.

    Temperature 0 takes the likeliest token, with its log-probability at temperature 1.
    """
    greedy = temperature_B == 0
    probabilities = torch.softmax(logits_BV / temperature_B.masked_fill(greedy, 1.0)[:, None], -1)
    if greedy.all():
        ids = logits_BV.argmax(-1)
    else:
        if (top_p_B < 1).any():
            probabilities = _nucleus(probabilities, top_p_B.masked_fill(greedy, 1.0))
        ids = _place(probabilities, uniform_B)
        ids = torch.where(greedy, logits_BV.argmax(-1), ids) if greedy.any() else ids
    return ids, probabilities.gather(1, ids[:, None])[:, 0].log()


BLOCK = 256
"""Tokens whose probabilities are added up at once: sums over a whole vocabulary take as long as its logits."""


def _place(probabilities_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """The token in which each uniform number lies. Sums are in double precision, so that the tail of a large vocabulary
    is not rounded away."""
    uniform_B = uniform_B.clamp(max=1 - 2**-52)  # so that no product below is rounded up to its bound
    blocks = F.pad(probabilities_BV, (0, -probabilities_BV.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))
    sums = blocks.sum(-1, dtype=torch.float64)
    ends = sums.cumsum(-1)
    at_B = uniform_B * ends[:, -1]
    rows = torch.arange(len(at_B), device=at_B.device)
    block_B = torch.searchsorted(ends, at_B[:, None], right=True)[:, 0]
    sum_B = sums[rows, block_B]
    share_B = ((at_B - ends[rows, block_B] + sum_B) / sum_B).clamp(0, 1 - 2**-52)
    inside = blocks[rows, block_B].cumsum(-1, dtype=torch.float64)
    return block_B * BLOCK + torch.searchsorted(inside, share_B[:, None] * inside[:, -1:], right=True)[:, 0]


def _nucleus(probabilities_BV: Tensor, top_p_B: Tensor) -> Tensor:
    """Keep the likeliest tokens that together have mass `top_p`, at least one, and make them sum to 1."""
    ranked, order = probabilities_BV.sort(-1, descending=True)
    before = ranked.cumsum(-1) - ranked
    most = top_p_B.clamp(min=torch.finfo(top_p_B.dtype).tiny)  # one so small that it was rounded to 0 keeps one as well
    ranked = ranked.masked_fill((before >= most[:, None]) & (top_p_B < 1)[:, None], 0.0)
    nucleus = torch.zeros_like(ranked).scatter_(1, order, ranked)
    return nucleus / nucleus.sum(-1, keepdim=True)


class StopTokens:
    """For engines with ids: finds the token that completes a stop text, in most cases without decoding."""

    def __init__(self, tokenizer: Tokenizer, texts: tuple[str, ...]) -> None:
        ends = {text[-1] for text in texts} | {"\ufffd"}
        self.may_end = {i for i, text in enumerate(tokenizer.texts) if texts and not ends.isdisjoint(text)}
        """Ids that can complete a stop text; for all others the text is not decoded."""
        self._tokenizer, self._texts = tokenizer, texts
        self._single = {tokenizer.id_of(text) for text in texts}
        self._window = 4 * max(map(len, texts), default=0)
        """Most tokens of a stop text: one for each byte."""

    def hit(self, sampled: list[int]) -> bool:
        """Whether the last token, one of `may_end`, completes a stop text."""
        if sampled[-1] in self._single:
            return True
        tail = self._tokenizer.decode(sampled[-self._window :])
        return any(text in tail for text in self._texts)
