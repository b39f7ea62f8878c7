"""The policy of a puppeteer: what it sees of an episode as numbers, and a small network that chooses the next action.

Puppeteer's state is a reward model's hidden state of the whole text. Here it is a vector of hashed words, so that any
machine computes it without a model: the words of the question (every number is one word), how often each action was
taken, how often it failed, the words of the newest results, and how far the answers agree.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from orgthink.util.errors import UserError
from orgthink.util.files import require_file_to_read, write_whole

STOP = "stop"
"""The action that ends an episode. It is the last one."""
QUESTION, RESULTS = 192, 64
"""Numbers into which the words of the question, and of the newest results, are hashed."""

Vector = NDArray[np.float32]
_WORD = re.compile(r"\d+|[^\W\d]+|[^\w\s]")
_CHARACTERS = 4_000
"""Characters of a text that count."""


class PastAction(NamedTuple):
    """An action that was taken, and what came of it."""

    step: int
    """Step of the policy, from 1 on."""
    action: int
    """Index of the action."""
    ok: bool
    """Whether its status was OK."""
    text: str
    """What came back."""


def features(question: str, events: Sequence[PastAction], actions: int, steps: int) -> Vector:
    """The state as numbers from 0 to about 1: `size(actions)` of them. `steps` is the largest number of steps."""
    newest = " ".join(event.text for event in events if event.step == events[-1].step)
    taken, failed = Counter(e.action for e in events), Counter(e.action for e in events if not e.ok)
    texts = Counter(event.text for event in events if event.ok)
    agreed = max(texts.values(), default=0)
    numbers = [
        *_hashed(question, QUESTION),
        *_hashed(newest, RESULTS),
        *(np.tanh(taken[i] / 2) for i in range(actions)),
        *(np.tanh(failed[i] / 2) for i in range(actions)),
        events[-1].step / steps if events else 0.0,
        np.tanh(agreed / 4),
        np.tanh(len(texts) / 4),
    ]
    return np.array(numbers, dtype=np.float32)


def size(actions: int) -> int:
    """Length of the state's vector."""
    return QUESTION + RESULTS + 2 * actions + 3


def _hashed(text: str, buckets: int) -> Vector:
    """The words of a text, each counted on a logarithmic scale in the bucket of its hash."""
    words = ("0" if word[0].isdigit() else word for word in _WORD.findall(text[:_CHARACTERS].lower()))
    counts = np.zeros(buckets, dtype=np.float32)
    for word, count in Counter(words).items():
        counts[crc32(word.encode("utf-8", "replace")) % buckets] += np.log1p(count) / 3
    return counts


@dataclass(frozen=True, slots=True, eq=False)
class PuppetPolicy:
    """A network with ReLU between its layers, and a softmax over actions."""

    actions: tuple[str, ...]
    """Names of the actions."""
    layers: tuple[tuple[Vector, Vector], ...]
    """Weights (out × in) and biases of each layer."""

    def probabilities(self, state: Vector) -> NDArray[np.float64]:
        """The probability of each action in a state."""
        hidden = state
        for weight, bias in self.layers[:-1]:
            hidden = np.maximum(weight @ hidden + bias, 0)
        weight, bias = self.layers[-1]
        logits = (weight @ hidden + bias).astype(np.float64)
        exponents = np.exp(logits - logits.max())
        return exponents / exponents.sum()

    def save(self, file: Path) -> None:
        """Write a safetensors file with the names of the actions in its metadata."""
        from safetensors.numpy import save

        tensors = {
            f"{i}.{kind}": part for i, layer in enumerate(self.layers) for kind, part in zip("wb", layer, strict=True)
        }
        write_whole(file, save(tensors, {"actions": json.dumps(self.actions)}))


def uniform(actions: Sequence[str]) -> PuppetPolicy:
    """A policy that has learned nothing: every action is as likely."""
    zeros = np.zeros((len(actions), size(len(actions))), dtype=np.float32), np.zeros(len(actions), dtype=np.float32)
    return PuppetPolicy(tuple(actions), (zeros,))


def load(file: Path) -> PuppetPolicy:
    """Read a policy. UserError if the file holds none."""
    from safetensors import SafetensorError, safe_open

    try:
        require_file_to_read(file)
        with safe_open(file, "numpy") as tensors:
            actions = tuple(json.loads(tensors.metadata()["actions"]))
            names = range(len(list(tensors.keys())) // 2)
            layers = tuple((tensors.get_tensor(f"{i}.w"), tensors.get_tensor(f"{i}.b")) for i in names)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{file} is not a puppeteer's policy ({error}): `orgthink train` makes one") from error
    if not _fit(actions, layers):
        raise UserError(f"{file} holds a policy of other states or actions: train it again")
    if not all(np.isfinite(part).all() for layer in layers for part in layer):
        raise UserError(f"{file} holds a policy with numbers that are not finite: train it again")
    return PuppetPolicy(actions, layers)


def _fit(actions: Sequence[object], layers: Sequence[tuple[Vector, Vector]]) -> bool:
    """Whether there are names of actions, of which the last one stops, and layers that lead from a state to them."""
    width = size(len(actions))
    for weight, bias in layers:
        if bias.ndim != 1 or weight.shape != (len(bias), width) or {weight.dtype, bias.dtype} != {np.dtype(np.float32)}:
            return False
        width = len(bias)
    return width == len(actions) and actions[-1:] == (STOP,) and all(isinstance(name, str) for name in actions)
