"""Which weights a sampler has to be sent: no vLLM is needed to know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from orgthink.engines.vllm import weight_names


@pytest.mark.parametrize(("tied", "sent"), [(True, {"embed"}), (False, {"embed", "lm_head.weight"})])
def test_a_head_that_is_tied_is_not_sent_though_it_is_stored(tmp_path: Path, tied: bool, sent: set[str]) -> None:
    """As folders of small models on hubs store it."""
    save_file({"embed": torch.zeros(2)}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"lm_head.weight": torch.zeros(2)}, tmp_path / "model-00002-of-00002.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"tie_word_embeddings": tied}))
    assert weight_names(tmp_path) == sent
