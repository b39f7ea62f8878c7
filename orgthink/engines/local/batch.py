"""Continuous batching without threads or I/O: requests join and leave between steps, a step gives tokens.

    submit → waiting → prefill (its prompt, in a separate batch) → decoding (in a block) → over

The cache of a finished request is kept, and requests with the same beginning copy it.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from orgthink.engines.engine import FinishReason
from orgthink.engines.local.cache import Block, KeysValues, PrefixCache
from orgthink.engines.local.sampling import COLDEST, StopTokens, draw, uniforms
from orgthink.engines.stepping import Counters
from orgthink.models.decoder import Decoder
from orgthink.models.lora import Adapter
from orgthink.models.row_adapters import RowAdapters
from orgthink.models.trainable import Trainable
from orgthink.record.episode import Sampling
from orgthink.util.errors import explained

_READ_AT_ONCE = 512
"""Most prompt tokens in a pass of the model, padding included. A longer prompt is read in several passes."""

_WIDTHS = [*range(64, 512, 64), *(width for n in range(8, 24) for width in (2 * 2**n, 3 * 2**n))]
"""Widths of blocks, in tokens. Coarser widths would waste attention, finer ones would move rows more often."""


@dataclass(slots=True, eq=False)
class Request:
    """A prompt to continue, and its state."""

    ids: list[int]
    """The prompt."""
    sampling: Sampling
    seed: int
    """64 bits."""
    limit: int
    """Most tokens to sample: `max_tokens`, or the rest of the model's context."""
    stops: StopTokens
    adapter: str | None = None
    """Name of its adapter; `None`: the model's own weights."""
    continues: bool = False
    """Whether its agent has sampled before, in a request that ended."""
    sampled: list[int] = field(default_factory=list)
    """Sampled ids."""
    length: int = 0
    """Tokens in its cache: all but the last sampled one."""
    over: bool = False
    """Whether its sampling has ended."""
    key: int | None = None
    """Key of its sequence in the prefix cache, while it decodes and others may copy it."""
    consumer: Any = None
    """Where its tokens go; not used here."""

    @property
    def seen(self) -> list[int]:
        """The prompt and the sampled ids."""
        return self.ids + self.sampled


class Token(NamedTuple):
    """A sampled token."""

    id: int
    logprob: float
    version: str
    """Weights that sampled it."""
    finish: FinishReason | None
    """Set on the last token of a request."""


class _Plan(NamedTuple):
    """A prompt to be read."""

    request: Request
    known: int
    """Cached tokens."""
    need: int
    """Tokens to read."""
    key: int
    """Key of the sequence in the prefix cache with the cached tokens."""


class DecodeBatch:
    """The active requests and the model that decodes them."""

    def __init__(
        self, model: Trainable, eos_ids: frozenset[int], *, version: str, slots: int, cache_bytes: int
    ) -> None:
        self.model, self.version = model, version
        self.counters = Counters()
        self._dtype, self._device = model.dtype, model.device
        self._eos_ids, self._slots, self._cache_bytes = eos_ids, slots, cache_bytes
        self.adapters: RowAdapters | None = None
        self._waiting: list[Request] = []
        self._blocks: dict[int, Block] = {}
        self._prefixes = PrefixCache(cache_bytes, 8 * slots)
        self._decoding: dict[int, Request] = {}
        """Requests in blocks by the key of their prompt."""

    @property
    def busy(self) -> bool:
        """Whether a step has anything to do."""
        return bool(self._waiting or any(block.rows for block in self._blocks.values()))

    @property
    def requests(self) -> list[Request]:
        """All active requests: decoding ones first, waiting ones last."""
        rows = [row for block in self._blocks.values() for row in block.rows]
        return [request for request in (*rows, *self._waiting) if not request.over]

    def submit(self, request: Request) -> None:
        self._waiting.append(request)

    def abort(self, requests: Iterable[Request]) -> None:
        """Sample no more for them."""
        for request in requests:
            request.over = True
        self._waiting = [request for request in self._waiting if not request.over]
        self._sweep()

    def clear(self) -> None:
        """Drop all requests and caches, also after a failed step."""
        self._waiting.clear()
        self._blocks.clear()
        self._decoding.clear()
        self._prefixes = PrefixCache(self._cache_bytes, 8 * self._slots)

    def forget(self) -> None:
        """Drop the caches of finished requests, unless others are active."""
        if not self.busy:
            self.clear()

    def update(self, weights: Mapping[str, Tensor], version: str) -> None:
        """Replace the weights. ValueError if they do not fit the model."""
        with explained("the weights do not fit the model", KeyError, RuntimeError, by=ValueError):
            self.model.from_hf(weights)
        self._read_again(version)

    def adapt(self, adapters: Mapping[str, Adapter], version: str) -> None:
        """Replace the adapters. ValueError if they do not fit the model."""
        if not isinstance(self.model, Decoder):
            raise ValueError("transformers computes this architecture, which takes no adapters of roles")
        self.adapters = RowAdapters(self.model, adapters)
        self._read_again(version)

    def _read_again(self, version: str) -> None:
        """Read the contexts of active requests again, so that their next tokens are drawn with new weights only."""
        active = self.requests
        for request in active:
            request.key, request.length = None, 0
        self.version = version
        self.clear()
        self._waiting += active

    def step(self) -> list[tuple[Request, Token]]:
        """Read some waiting prompts, if there are any, and sample one token for every decoding request."""
        plans = self._next_prompts()
        tokens = self._read(plans) if plans else []
        tokens += self._decode()
        self._sweep()
        return tokens

    def _next_prompts(self) -> list[_Plan]:
        """Waiting prompts to read now, as long as slots are free and padding is less than half of the batch.

        Agents that continue go before agents that begin: their episodes wait for them, and their cache may be dropped.
        """
        slots = self._slots - sum(len(block.rows) for block in self._blocks.values())
        taken: list[_Plan] = []
        passed: list[Request] = []
        prompts: set[tuple[int, ...]] = set()
        width = total = 0
        self._waiting.sort(key=lambda request: not request.continues)
        candidates, later = self._waiting[:slots], self._waiting[slots:]
        for plan in map(self._plan, candidates):
            prompt, wider = tuple(self._marked(plan.request, plan.request.seen)), max(width, plan.need)
            repeated = prompt in prompts and plan.need > 1  # it waits until the equal prompt is read, then copies it
            padded = (len(taken) + 1) * wider
            if repeated or padded > 2 * (total + plan.need) + 64 or (taken and padded > _READ_AT_ONCE):
                passed.append(plan.request)
                continue
            taken.append(plan)
            prompts.add(prompt)
            width, total = wider, total + plan.need
        self._waiting = passed + later
        return taken

    def _plan(self, request: Request) -> _Plan:
        seen = request.seen
        found, key = self._prefixes.find(self._marked(request, seen))
        known = min(max(found - 1, 0), len(seen) - 1)  # without the mark; the last token's logits are needed
        return _Plan(request, known, len(seen) - known, key)

    def _marked(self, request: Request, ids: list[int]) -> list[int]:
        """The ids after one of its adapter, so that sequences of different adapters have no common prefix."""
        return [-2 - (self.adapters.places[request.adapter] if self.adapters else 0), *ids]

    def _choose(self, rows: Sequence[Request]) -> None:
        """Use the adapters of these rows in the next pass."""
        if self.adapters is not None:
            self.adapters.choose([row.adapter for row in rows])

    def _cached(self, key: int, length: int) -> KeysValues:
        """The first tokens of a sequence in the prefix cache."""
        cache = self._prefixes.get(key)
        if cache is None:
            owner = self._decoding[key]
            block = self._block(owner.length)
            cache = block.get(block.rows.index(owner))
        return cache.first(length)

    def _block(self, length: int) -> Block:
        """The block in which a row of this length decodes its next token."""
        width = _WIDTHS[bisect.bisect_right(_WIDTHS, length)]
        if width not in self._blocks:
            self._blocks[width] = self._new_block(width)
        return self._blocks[width]

    def _new_block(self, width: int) -> Block:
        return Block(self.model.config, width, self._dtype, self._device)

    @torch.inference_mode()
    def _read(self, plans: list[_Plan]) -> list[tuple[Request, Token]]:
        """Read prompts, some columns at a time, and return their first sampled tokens."""
        rows, width = [plan.request for plan in plans], max(plan.need for plan in plans)
        block, columns = self._new_block(max(plan.known for plan in plans) + width), max(1, _READ_AT_ONCE // len(plans))
        ids, read = torch.zeros(len(plans), width, dtype=torch.long), [row.seen for row in rows]
        for i, (request, known, need, key) in enumerate(plans):
            block.put(request, self._cached(key, known) if known else None)
            ids[i, :need] = torch.tensor(read[i][known:])
        self._choose(rows)
        starts, last = torch.tensor([[plan.known] for plan in plans]), dict[int, Tensor]()
        for first in range(0, width, columns):
            part = ids[:, first : first + columns]
            positions = starts + torch.arange(first, first + part.shape[1])
            block.step(positions)
            within = positions.clamp(max=self.model.config.max_position_embeddings - 1)  # padding may lie beyond
            hidden = self.model.decode(part.to(self._device), within.to(self._device), block.attend)
            ends = [plan.need - 1 - first for plan in plans]
            last |= {i: hidden[i, end] for i, end in enumerate(ends) if 0 <= end < part.shape[1]}
        self.counters.computed_prompt_tokens += sum(plan.need for plan in plans)
        self.counters.reused_prompt_tokens += sum(plan.known for plan in plans)
        tokens = self._sample(rows, torch.stack([last[i] for i in range(len(rows))]))
        for i, (request, ids) in enumerate(zip(rows, read, strict=True)):
            request.length = len(ids)
            request.key = self._prefixes.add(self._marked(request, ids))
            self._decoding[request.key] = request
            self._block(request.length).put(request, block.get(i))
        self._sweep()
        return tokens

    def _decode(self) -> list[tuple[Request, Token]]:
        """One step of every row of every block."""
        blocks = [block for block in self._blocks.values() if block.rows]
        rows = [row for block in blocks for row in block.rows]
        if not rows:
            return []
        hidden = self._hidden(blocks)
        self.counters.steps += 1
        for row in rows:
            row.length += 1
            if row.key is not None:  # the mark of its adapter stands before its ids
                self._prefixes.extend(row.key, row.length, row.sampled[-1])
        return self._sample(rows, hidden)

    @torch.inference_mode()
    def _hidden(self, blocks: Sequence[Block]) -> Tensor:
        """Final hidden state [B, C] of each row's last token."""
        rows, sizes = [row for block in blocks for row in block.rows], [len(block.rows) for block in blocks]
        ids, positions = torch.tensor([(row.sampled[-1], row.length) for row in rows]).split(1, -1)
        for block, part in zip(blocks, positions.split(sizes), strict=True):
            block.step(part)
        self._choose(rows)

        def attend(layer: int, *qkv: Tensor) -> Tensor:
            parts = zip(blocks, *(heads.split(sizes) for heads in qkv), strict=True)
            return torch.cat([block.attend(layer, *part) for block, *part in parts])

        return self.model.decode(ids.to(self._device), positions.to(self._device), attend)[:, 0]

    @torch.inference_mode()
    def _sample(self, rows: Sequence[Request], hidden_BC: Tensor) -> list[tuple[Request, Token]]:
        """A token for each row that is not over."""
        seeds = np.array([row.seed for row in rows], dtype=np.uint64)
        counts = np.array([len(row.sampled) for row in rows], dtype=np.uint64)
        temperatures, top_p = torch.tensor([(row.sampling.temperature, row.sampling.top_p) for row in rows]).unbind(1)
        how = torch.where(temperatures < COLDEST, 0.0, temperatures), top_p, uniforms(seeds, counts)
        drawn = draw(self.model.logits(hidden_BC).float(), *(part.to(self._device) for part in how))
        ids, logprobs = (part.cpu() for part in drawn)
        if not logprobs.isfinite().all():
            raise ArithmeticError("the model's logits are not finite")
        sampled = zip(rows, ids.tolist(), logprobs.tolist(), strict=True)
        tokens = [(row, self._take(row, i, logprob)) for row, i, logprob in sampled if not row.over]
        self.counters.sampled_tokens += len(tokens)
        return tokens

    def _take(self, request: Request, i: int, logprob: float) -> Token:
        sampled, finish = request.sampled, None
        sampled.append(i)
        if i in request.stops.may_end and request.stops.hit(sampled):
            finish = FinishReason.STOP
        elif i in self._eos_ids:
            finish = FinishReason.EOS
        elif len(sampled) >= request.limit:
            finish = FinishReason.LENGTH
        request.over = finish is not None
        return Token(i, logprob, self.version, finish)

    def _sweep(self) -> None:
        """Move the caches of finished requests to the prefix cache, and long rows to wider blocks."""
        if any(row.over or row.length == block.width for block in self._blocks.values() for row in block.rows):
            self._move()

    @torch.inference_mode()
    def _move(self) -> None:
        for block in list(self._blocks.values()):
            outgrown = sum(row.length == block.width and not row.over for row in block.rows)
            if outgrown:
                self._block(block.width).reserve(outgrown)
            for i in reversed(range(len(block.rows))):
                request = block.rows[i]
                if request.over:
                    self._keep(request, block.get(i))
                elif request.length == block.width:
                    self._block(request.length).put(request, block.get(i))
                else:
                    continue
                block.remove(i)

    def _keep(self, request: Request, cache: KeysValues) -> None:
        if request.key is not None:
            del self._decoding[request.key]
            self._prefixes.remove(request.key)
            self._prefixes.keep(self._marked(request, request.seen[: request.length]), cache)
