"""Continuous batching without threads or I/O: requests join and leave between steps, a step gives tokens.

    submit → waiting → reading (its prompt, in a batch of its own) → decoding (in a block) → over

What a request has seen is kept when it is over, and beginnings that other requests share are copied.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from orgthink.engines.engine import Finish
from orgthink.engines.local.cache import Block, KeysValues, PrefixCache
from orgthink.engines.local.qwen3 import Qwen3
from orgthink.engines.local.sampling import draw, uniforms
from orgthink.engines.stops import StopTokens
from orgthink.episode import Sampling

_READ = 512
"""Most prompt tokens that are read between two decoding steps; the rest waits for the next."""

_PATIENCE = 4
"""Steps that a few prompts wait for others at most: reading them one by one would cost more."""

_WIDTHS = [*range(64, 512, 64), *(width for n in range(8, 24) for width in (2 * 2**n, 3 * 2**n))]
"""Widths of blocks, in tokens. Wider steps would waste attention, narrower ones move rows more often."""


@dataclass(slots=True, eq=False)
class Request:
    """A prompt to decode on from, and how far that is."""

    ids: list[int]
    """The prompt."""
    sampling: Sampling
    seed: int
    """64 bits."""
    limit: int
    """Most tokens to sample: `max_tokens`, or what fits into the model's context."""
    stops: StopTokens
    sampled: list[int] = field(default_factory=list)
    """Ids so far."""
    length: int = 0
    """Tokens in its cache: all but the last one sampled."""
    over: bool = False
    """No token will be sampled for it any more."""
    key: int | None = None
    """Of its prompt in the prefix cache, while it decodes and others may copy it."""

    @property
    def seen(self) -> list[int]:
        """The prompt and what was sampled: all that is read again with other weights."""
        return self.ids + self.sampled


class Token(NamedTuple):
    """A sampled token."""

    id: int
    logprob: float
    version: str
    """Weights that sampled it."""
    finish: Finish | None
    """Set if it is the request's last."""


R = TypeVar("R", bound=Request)


class _Plan(NamedTuple, Generic[R]):
    """What has to be done for a prompt."""

    request: R
    known: int
    """Tokens that are cached."""
    need: int
    """Tokens to read."""
    key: int
    """Of the sequence in the prefix cache that knows them."""


@dataclass(slots=True)
class _Reading(Generic[R]):
    """Prompts that are being read, a range of columns at a time."""

    block: Block[R]
    starts: Tensor
    """[B, 1]: tokens of each row that were cached."""
    ids: Tensor
    """[B, T]: what is to be read, padded."""
    last: dict[int, Tensor] = field(default_factory=dict)
    """Final hidden state of each row's last token, once it is read."""
    done: int = 0
    """Columns read."""


class Batch(Generic[R]):
    """Requests under way, and the model that decodes them. The counters only grow."""

    def __init__(self, model: Qwen3, eos_ids: frozenset[int], *, version: str, slots: int, cache_bytes: int) -> None:
        self.model, self.version = model, version
        self.steps = self.sampled_tokens = self.computed_prompt_tokens = self.reused_prompt_tokens = 0
        self._eos_ids, self._slots = eos_ids, slots
        self._waiting: deque[R] = deque()
        self._waited = 0
        """Steps since a prompt could have been read."""
        self._reading: _Reading[R] | None = None
        self._blocks: dict[int, Block[R]] = {}
        self._empty_cache = partial(PrefixCache, cache_bytes, 8 * slots)
        self._prefixes = self._empty_cache()
        self._decoding: dict[int, R] = {}
        """Requests in blocks by the key of their prompt."""

    @property
    def reading(self) -> bool:
        """Whether prompts are waiting or being read."""
        return bool(self._waiting or self._reading)

    @property
    def busy(self) -> bool:
        """Whether a step has anything to do."""
        return self.reading or any(bool(block.rows) for block in self._blocks.values())

    @property
    def requests(self) -> list[R]:
        """All that are not over; those that have got furthest come first."""
        reading = self._reading.block.rows if self._reading else []
        rows = [row for block in self._blocks.values() for row in block.rows]
        return [request for request in (*rows, *reading, *self._waiting) if not request.over]

    def submit(self, request: R) -> None:
        self._waiting.append(request)

    def abort(self, requests: Iterable[R]) -> None:
        """Sample no more for them."""
        for request in requests:
            request.over = True
        self._waiting = deque(request for request in self._waiting if not request.over)
        self._sweep()

    def clear(self) -> None:
        """Drop everything, whatever state it is in."""
        self._waiting.clear()
        self._reading = None
        self._blocks.clear()
        self._decoding.clear()
        self._prefixes = self._empty_cache()

    def update(self, weights: Mapping[str, Tensor], version: str) -> None:
        """Go on with other weights. What requests under way have seen is read again, with the new ones: then their
        next tokens have the probabilities that the new weights give them.

        ValueError if the weights do not fit the model.
        """
        try:
            self.model.from_hf(weights)
        except (KeyError, RuntimeError) as error:
            raise ValueError(f"the weights do not fit the model: {error}") from error
        self._waiting = deque(self.requests)
        for request in self._waiting:
            request.key, request.length = None, 0
        self.version = version
        self._reading = None
        self._prefixes = self._empty_cache()
        self._decoding.clear()
        self._blocks.clear()

    @torch.inference_mode()
    def step(self) -> list[tuple[R, Token]]:
        """Read some prompt tokens, if there are any to read, and sample one token for every other request."""
        tokens = self._read() if self._reading or self._start_reading() else []
        tokens += self._decode()
        self._sweep()
        return tokens

    def _start_reading(self) -> bool:
        """Take prompts that wait, as long as there are slots and padding does not outweigh them."""
        decoding = sum(len(block.rows) for block in self._blocks.values())
        slots = min(self._slots - decoding, len(self._waiting))
        self._waited = self._waited + 1 if slots else 0
        if not slots or (self._waited < _PATIENCE and slots < decoding // 16):
            return False
        self._waited = 0
        taken: list[_Plan[R]] = []
        passed: list[R] = []
        prompts: set[tuple[int, ...]] = set()
        width = total = 0
        for _ in range(slots):
            plan = self._plan(self._waiting.popleft())
            prompt, wider = tuple(plan.request.seen), max(width, plan.need)
            # An equal prompt waits until this one is read, then copies it.
            if (prompt in prompts and plan.need > 1) or (len(taken) + 1) * wider > 2 * (total + plan.need) + 64:
                passed.append(plan.request)
                continue
            taken.append(plan)
            prompts.add(prompt)
            width, total = wider, total + plan.need
        self._waiting.extendleft(reversed(passed))
        if taken:
            self._reading = self._prepare(taken, width)
            self.computed_prompt_tokens += total
            self.reused_prompt_tokens += sum(plan.known for plan in taken)
        return bool(taken)

    def _plan(self, request: R) -> _Plan[R]:
        seen = request.seen
        known, key = self._prefixes.find(seen)
        known = min(known, len(seen) - 1)  # the last token's logits are needed
        return _Plan(request, known, len(seen) - known, key)

    def _prepare(self, plans: list[_Plan[R]], width: int) -> _Reading[R]:
        block: Block[R] = Block(self.model.config, max(plan.known for plan in plans) + width)
        ids = torch.zeros(len(plans), width, dtype=torch.long)
        for i, (request, known, need, key) in enumerate(plans):
            block.put(request, self._cached(key, known) if known else None)
            ids[i, :need] = torch.tensor(request.seen[known:])
        return _Reading(block, torch.tensor([[plan.known] for plan in plans]), ids)

    def _cached(self, key: int, length: int) -> KeysValues:
        """The first tokens of a sequence in the prefix cache."""
        kept = self._prefixes.get(key)
        if kept is None:
            owner = self._decoding[key]
            block = self._block(owner.length)
            kept = block.get(block.rows.index(owner))
        return kept.first(length)

    def _block(self, length: int) -> Block[R]:
        """Where a row of this length decodes its next token."""
        width = _WIDTHS[bisect.bisect_right(_WIDTHS, length)]
        if width not in self._blocks:
            self._blocks[width] = Block(self.model.config, width)
        return self._blocks[width]

    def _read(self) -> list[tuple[R, Token]]:
        """Read on, at most `_READ` tokens. Gives the first tokens once the prompts are read."""
        reading = self._reading
        assert reading is not None
        rows, (first, width) = reading.block.rows, (reading.done, reading.ids.shape[1])
        read = [row.seen for row in rows]
        reading.done = last = min(width, first + max(1, _READ // len(rows)))
        positions = reading.starts + torch.arange(first, last)
        reading.block.step(positions)
        within = positions.clamp(max=self.model.config.max_position_embeddings - 1)  # padding may lie beyond
        hidden = self.model.decode(reading.ids[:, first:last], within, reading.block.attend)
        ends = [len(ids) - 1 - int(start) for ids, start in zip(read, reading.starts, strict=True)]
        reading.last |= {i: hidden[i, end - first] for i, end in enumerate(ends) if first <= end < last}
        if last < width:
            return []
        self._reading = None
        tokens = self._sample(rows, torch.stack([reading.last[i] for i in range(len(rows))]))
        for i, (request, ids) in enumerate(zip(rows, read, strict=True)):
            request.length = len(ids)
            request.key = self._prefixes.add(ids)
            self._decoding[request.key] = request
            self._block(request.length).put(request, reading.block.get(i))
        self._sweep()
        return tokens

    def _decode(self) -> list[tuple[R, Token]]:
        """One step of every row of every block."""
        blocks = [block for block in self._blocks.values() if block.rows]
        rows = [row for block in blocks for row in block.rows]
        if not rows:
            return []
        sizes = [len(block.rows) for block in blocks]
        ids, positions = torch.tensor([(row.sampled[-1], row.length) for row in rows]).split(1, -1)
        for block, part in zip(blocks, positions.split(sizes), strict=True):
            block.step(part)

        def attend(layer: int, *qkv: Tensor) -> Tensor:
            parts = zip(blocks, *(heads.split(sizes) for heads in qkv), strict=True)
            return torch.cat([block.attend(layer, *part) for block, *part in parts])

        hidden = self.model.decode(ids, positions, attend)[:, 0]
        self.steps += 1
        for row in rows:
            row.length += 1
        return self._sample(rows, hidden)

    def _sample(self, rows: Sequence[R], hidden_BC: Tensor) -> list[tuple[R, Token]]:
        """A token for each row that is not over."""
        temperature = torch.tensor([row.sampling.temperature for row in rows])
        top_p = torch.tensor([row.sampling.top_p for row in rows])
        seeds = np.array([row.seed for row in rows], dtype=np.uint64)
        counts = np.array([len(row.sampled) for row in rows], dtype=np.uint64)
        ids, logprobs = draw(self.model.logits(hidden_BC), temperature, top_p, uniforms(seeds, counts))
        if not logprobs.isfinite().all():
            raise ArithmeticError("the model's logits are not finite")
        sampled = zip(rows, ids.tolist(), logprobs.tolist(), strict=True)
        tokens = [(row, self._take(row, i, logprob)) for row, i, logprob in sampled if not row.over]
        self.sampled_tokens += len(tokens)
        return tokens

    def _take(self, request: R, i: int, logprob: float) -> Token:
        sampled, finish = request.sampled, None
        sampled.append(i)
        if i in request.stops.may_end and request.stops.hit(sampled):
            finish = Finish.STOP
        elif i in self._eos_ids:
            finish = Finish.EOS
        elif len(sampled) >= request.limit:
            finish = Finish.LENGTH
        request.over = finish is not None
        return Token(i, logprob, self.version, finish)

    @torch.inference_mode()
    def _sweep(self) -> None:
        """Keep the caches of requests that are over, and move rows that have outgrown their block."""
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

    def _keep(self, request: R, cache: KeysValues) -> None:
        if request.key is not None:
            del self._decoding[request.key]
            self._prefixes.remove(request.key)
            self._prefixes.keep(request.seen[: request.length], cache)
