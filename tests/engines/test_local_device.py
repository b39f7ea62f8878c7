"""The embedded engine on another device says what it says on the CPU: on a GPU, and on a device that every machine
pretends to have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from devices import CUDA
from elsewhere import DEVICE, OtherDevice
from models import tiny_model
from test_local import Said, prompts, say
from torch.nn.attention import SDPBackend, sdpa_kernel

from orgthink.engines.local.engine import LocalEngine
from orgthink.models.decoder import Decoder


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("words"), context=4096)


@pytest.fixture(params=[str(DEVICE), CUDA])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    pretended = request.param == str(DEVICE)
    with OtherDevice() if pretended else nullcontext(), sdpa_kernel(SDPBackend.MATH):
        yield request.param


async def answers(engine: LocalEngine) -> list[Said]:
    """Greedy, sampled and nucleus answers, of prompts that share beginnings, and some of them once more."""
    settings = [{"temperature": t, "top_p": p, "seed": 3} for t, p in ((0.0, 1.0), (1.0, 1.0), (0.7, 0.8))]
    asked = [(ids, settings[n % 3]) for n, ids in enumerate(prompts(4))]
    for _ in range(2):
        found = await asyncio.gather(*(say(engine, ids, 8, **how) for ids, how in asked))
    await engine.aclose()
    return found


@pytest.mark.numerical
async def test_it_says_what_it_says_on_the_cpu(device: str, words: Path):
    expected = await answers(LocalEngine.open(words, threaded=False))
    there = LocalEngine.open(words, threaded=False, device=device)
    for mine, theirs in zip(await answers(there), expected, strict=True):
        assert (mine.ids, mine.text, mine.finish) == (theirs.ids, theirs.text, theirs.finish)
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-3)
    assert there.counters.reused_prompt_tokens > 0


@pytest.mark.numerical
@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")  # the pretended device copies
async def test_weights_of_the_cpu_reach_it(device: str, words: Path):
    other = Decoder.load(words)
    with torch.no_grad():
        for weight in other.parameters():
            weight.copy_(weight.flip(0))
    here, there = (LocalEngine.open(words, threaded=False, device=place) for place in ("cpu", device))
    for engine in (here, there):
        await engine.update_weights(other.to_hf(), "1")
    for mine, theirs in zip(await answers(there), await answers(here), strict=True):
        assert mine.ids == theirs.ids
