"""Recorded schedules, executed on a GPU: `python -m benchmarks.lockstep SCHEDULES.json --out SECONDS.json`.

The model has a true shape and random weights. Agents at work decode one token together in each step, by CUDA graphs as
engines have them; what an agent reads takes a pass of its own, which samples its next token. Every step waits for its
tokens, as an engine that looks for stop texts has to. Queues, servers and the search for stop texts are left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import tyro
from orgthink_pocket.base.model import initialise
from torch import Tensor

from benchmarks.schedules import Turn, slots
from orgthink.models.config import DecoderConfig
from orgthink.models.decoder import Decoder
from orgthink.training.cluster.sizing.model import config_of
from orgthink.util.files import write_whole
from orgthink.util.tabular import json_object
from orgthink.util.terminal import show

# Shapes: R rows, T tokens, L length of the cache, C hidden, H query heads, K key/value heads, G = H / K, D head size.

Schedules = Mapping[str, Mapping[str, Mapping[str, Sequence[Turn]]]]
"""Method → training → problem → its turns."""
Seconds = dict[str, dict[str, dict[str, float]]]
"""Method → training → problem → seconds."""
ROWS = (1, 2, 4, 8)
"""Numbers of rows of a step; others are rounded up."""
LENGTHS = (512, 1024)
"""Lengths of the cache that a step looks at; others are rounded up."""
IDLE = LENGTHS[-1] - 1
"""Where a row that waits writes, and no other row looks."""


def random_weights(config: DecoderConfig, dtype: torch.dtype, device: str) -> Decoder:
    """A model of a shape. Its texts mean nothing."""
    with torch.device(device):
        model = Decoder(config).to(dtype)
        initialise(model, torch.Generator(device).manual_seed(0))
    return model.requires_grad_(False).eval()


class Cached:
    """Several texts in one cache, which go on together, always by the likeliest token."""

    def __init__(self, model: Decoder) -> None:
        config, device = model.config, model.device
        shape = (ROWS[-1], config.num_key_value_heads, LENGTHS[-1], config.head_dim)
        dtype = model.norm.weight.dtype
        self.model = model
        self.keys, self.values = ([torch.zeros(shape, dtype=dtype, device=device) for _ in model.layers] for _ in "kv")
        self.ids_R = torch.zeros(ROWS[-1], dtype=torch.long, device=device)
        self.positions_R = torch.zeros(ROWS[-1], dtype=torch.long, device=device)
        self.lengths = [0] * ROWS[-1]
        """Tokens of each text in the cache."""
        self.steps = {(rows, length): self._captured(rows, length) for rows in ROWS for length in LENGTHS}

    def read(self, row: int, ids: Sequence[int]) -> int:
        """Read tokens at the end of a text. Returns the next one."""
        start, device = self.lengths[row], self.model.device
        end = start + len(ids)
        ids_RT, positions_RT = torch.tensor([list(ids)], device=device), torch.arange(start, end, device=device)[None]
        self.ids_R[row] = self._next(ids_RT, positions_RT, row, _up(LENGTHS, end))[0, -1]
        self.lengths[row] = end
        return int(self.ids_R[row])

    def step(self, active: Sequence[int]) -> list[int]:
        """Add the newest token of each of these rows to its text. Returns the next ones, in their order."""
        self.positions_R.copy_(torch.tensor([n if row in active else IDLE for row, n in enumerate(self.lengths)]))
        longest = 1 + max(self.lengths[row] for row in active)
        self.steps[_up(ROWS, 1 + max(active)), _up(LENGTHS, longest)]()
        for row in active:
            self.lengths[row] += 1
        found = self.ids_R.tolist()
        return [found[row] for row in active]

    def _captured(self, rows: int, length: int) -> Callable[[], None]:
        """A step of the first rows, as one CUDA graph; on a CPU as it is."""

        def step() -> None:
            ids_R, positions_R = self.ids_R[:rows], self.positions_R[:rows]
            next_R = self._next(ids_R[:, None], positions_R[:, None], 0, length)[:, 0]
            ids_R.copy_(torch.where(positions_R == IDLE, ids_R, next_R))

        if self.model.device.type != "cuda":
            return step
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    def _next(self, ids_RT: Tensor, positions_RT: Tensor, first: int, length: int) -> Tensor:
        """The likeliest token after each one [R, T], each at its position of a text. The texts are those of the rows
        from `first` on."""
        config, (rows, tokens) = self.model.config, ids_RT.shape
        heads, group = config.num_key_value_heads, config.num_attention_heads // config.num_key_value_heads
        place_R1 = torch.arange(first, first + rows, device=ids_RT.device)[:, None]
        seen_RTL = torch.arange(length, device=ids_RT.device) <= positions_RT[..., None]
        mask = seen_RTL[:, None, None].expand(rows, 1, group, tokens, length).flatten(2, 3)  # [R, 1, GT, L]

        def attend(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            for cache, new in ((self.keys[i], k), (self.values[i], v)):
                cache[place_R1, :, positions_RT] = new
            k, v = (cache[i][first : first + rows, :, :length] for cache in (self.keys, self.values))
            grouped = q.unflatten(2, (heads, group)).permute(0, 2, 3, 1, 4).flatten(2, 3)  # [R, K, GT, D]
            mixed = F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask)
            return mixed.unflatten(2, (group, tokens)).permute(0, 3, 1, 2, 4).flatten(2, 3)

        return self.model.logits(self.model.decode(ids_RT, positions_RT, attend)).argmax(-1)


def _up(sizes: Sequence[int], wanted: int) -> int:
    """The smallest of the sizes that is enough. ValueError without one."""
    for size in sizes:
        if wanted <= size:
            return size
    raise ValueError(f"{wanted} is more than {sizes[-1]}, for which this decoder is made")


def execute(decoder: Cached, turns: Sequence[Turn]) -> int:
    """Decode a schedule. Returns the number of its steps."""
    places, vocabulary = slots(turns), decoder.model.config.vocab_size
    last, begun = max(turn.end for turn in turns), set[int]()
    for step in range(last):
        active = [turn for turn in turns if turn.start <= step < turn.end]
        for turn in active:
            if turn.agent not in begun:
                begun.add(turn.agent)
                decoder.lengths[places[turn.agent]] = 0
        reading = [turn for turn in active if turn.start == step and turn.reads]
        for turn in reading:
            decoder.read(places[turn.agent], [(7 * i + turn.agent) % vocabulary for i in range(turn.reads)])
        if rows := [places[turn.agent] for turn in active if turn not in reading]:
            decoder.step(rows)
    return last


@dataclass(frozen=True)
class Options:
    """Measure the seconds of recorded schedules on a model of a true shape."""

    schedules: tyro.conf.Positional[Path]
    """File of schedules: method → training → problem → turns."""
    out: Path
    """File for their seconds, in the same order. What it has already is not measured again."""
    model: str = "qwen3-4b"
    """Shape of the model: one that `orgthink size` knows."""
    device: str = "cuda"
    """Where it computes."""


def measure(decoder: Cached, wanted: Schedules, seconds: Seconds, save: Callable[[], None]) -> None:
    """Add the seconds of the schedules that have none yet. Each is saved when it is done: a loan of a GPU may end."""
    for method, trainings in wanted.items():
        for training, problems in trainings.items():
            found = seconds.setdefault(method, {}).setdefault(training, {})
            for problem in [problem for problem in problems if problem not in found]:
                start = time.perf_counter()
                execute(decoder, problems[problem])  # its last step waits for its tokens
                found[problem] = time.perf_counter() - start
                save()
            show(f"{method}, training {training}: {sum(found.values()):.1f} s")


def _step_seconds(decoder: Cached, rows: int) -> float:
    """Seconds of a step of some rows, each with 150 tokens of context."""
    for row in range(rows):
        decoder.lengths[row] = 0
        decoder.read(row, range(150))
    found = []
    for _ in range(40):
        start = time.perf_counter()
        decoder.step(range(rows))
        found.append(time.perf_counter() - start)
    return sorted(found)[len(found) // 2]


def main(options: Options) -> None:
    wanted: Schedules = {
        method: {
            training: {problem: [Turn(*turn) for turn in turns] for problem, turns in problems.items()}
            for training, problems in trainings.items()
        }
        for method, trainings in json_object(options.schedules).items()
    }
    decoder = Cached(random_weights(DecoderConfig(**config_of(options.model)), torch.bfloat16, options.device))
    for problems in next(iter(wanted.values())).values():  # warm up
        execute(decoder, next(iter(problems.values())))
    found: dict[str, Any] = json_object(options.out) if options.out.exists() else {"seconds": {}}
    found["model"], found["torch"] = options.model, torch.__version__
    found["device"] = torch.cuda.get_device_name() if options.device == "cuda" else options.device
    found["step_ms"] = {str(rows): 1e3 * _step_seconds(decoder, rows) for rows in ROWS}

    def save() -> None:
        write_whole(options.out, (json.dumps(found, indent=1) + "\n").encode())

    measure(decoder, wanted, found["seconds"], save)


if __name__ == "__main__":
    main(tyro.cli(Options))
