"""What an encoder of sentences may be made of."""

from __future__ import annotations

import json
from pathlib import Path

from orgthink.tools.dense import require_plain

PARTS = {
    "": "sentence_transformers.models.Transformer",
    "1_Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "2_Dense": "sentence_transformers.models.Dense",
}
"""Parts of an encoder, by their folders."""


def test_a_plain_encoder(tmp_path: Path) -> None:
    require_plain(tmp_path)
    (tmp_path / "2_Dense").mkdir()
    (tmp_path / "2_Dense" / "config.json").write_text('{"activation_function": "torch.nn.modules.activation.Tanh"}')
    (tmp_path / "config.json").write_text('{"activation_function": "gelu_new"}')
    parts = [{"path": path, "type": kind} for path, kind in PARTS.items()]
    (tmp_path / "modules.json").write_text(json.dumps(parts))
    require_plain(tmp_path)
