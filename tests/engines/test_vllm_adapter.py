"""An adapter that was trained here, in the real server of vLLM. `make test-vllm`."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
import torch
from vllm_process import vllm_server

from orgthink.engines import engine_spec
from orgthink.models.decoder import Decoder
from orgthink.models.tokenizer import Tokenizer

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm")

ROOT = Path(__file__).parents[2]
ADAPTER = ROOT / "examples" / "smollm2-countdown"
SETTINGS = ("--max-model-len", "512", "--enable-lora", "--max-lora-rank", "16", "--lora-modules", f"trained={ADAPTER}")


@torch.no_grad()
def logprobs(model: Path, ids: list[int]) -> torch.Tensor:
    """[T - 1]: of each token but the first one."""
    each = Decoder.load(model)(torch.tensor([ids]))[0].log_softmax(-1)
    return each[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def test_log_probabilities_are_ours(smollm2: Path, tmp_path: Path) -> None:
    ids = Tokenizer(smollm2).encode((ROOT / "papers" / "smollm2.md").read_text())[:200]
    served = {}
    with vllm_server(smollm2, tmp_path / "log", *SETTINGS) as url:
        for model in ("taught", "trained"):  # the base, by the name that every test server gives it
            asked = {"model": model, "prompt": ids, "max_tokens": 1, "prompt_logprobs": 0}
            reply = httpx2.post(f"{url}/completions", json=asked, timeout=300).json()
            found = reply["choices"][0]["prompt_logprobs"][1:]
            served[model] = torch.tensor([one[str(i)]["logprob"] for one, i in zip(found, ids[1:], strict=True)])
    folder = engine_spec(str(ADAPTER)).folder
    assert folder is not None
    assert torch.allclose(served["trained"], logprobs(folder, ids), atol=1e-3)
    assert torch.allclose(served["taught"], logprobs(smollm2, ids), atol=1e-3)
    assert (served["trained"] - served["taught"]).abs().max() > 1
