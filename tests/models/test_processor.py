"""Linear maps by oneDNN, on processors where it is faster than MKL."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F

from orgthink.models import processor
from orgthink.models.config import DecoderConfig
from orgthink.models.decoder import Decoder
from orgthink.models.processor import linear_map, prefers_onednn

pytestmark = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise") or not torch.backends.mkldnn.is_available(),
    reason="this PyTorch has no oneDNN",
)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """Shapes of the inputs that oneDNN multiplies; it does so with every weight matrix."""
    real, found = torch.ops.mkldnn._linear_pointwise, []
    monkeypatch.setattr(processor, "prefers_onednn", lambda: True)
    monkeypatch.setattr(processor, "LARGE_MATRIX", 0)
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", lambda x, *rest: found.append(x.shape) or real(x, *rest))
    return found


def assert_close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    assert found.shape == wanted.shape
    scale = float(wanted.abs().max()) if wanted.numel() else 1.0
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5 * scale)


@pytest.mark.numerical
@pytest.mark.parametrize("shape", [(1, 64), (2, 64), (17, 64), (3, 5, 64), (1, 1, 64), (64,), (0, 64)])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_values_are_those_of_f_linear(shape, has_bias, transposed, products):
    weight = torch.randn(64, 100).T if transposed else torch.randn(100, 64)
    x, bias = torch.randn(shape), torch.randn(100) if has_bias else None
    with torch.inference_mode():
        found = linear_map(x, weight, bias)
    assert_close(found, F.linear(x, weight, bias))
    assert products == [shape]
    assert found.is_contiguous(), "adapters change it in place"


@pytest.mark.numerical
@pytest.mark.parametrize("tied", [False, True])
def test_the_layers_and_the_head_of_a_sampling_decoder_use_it(tied, products):
    model = Decoder(DecoderConfig(97, 64, 96, 2, 4, 2, 16, 100, tie_word_embeddings=tied))
    ids = torch.arange(24).view(2, 12)
    with torch.inference_mode():
        found = model(ids)
    assert len(products) == 9, "four of each layer, and the head"
    model(ids).sum().backward()
    with torch.no_grad():
        assert_close(found, model(ids))
    assert len(products) == 9, "only while sampling"


@torch.inference_mode()
def test_other_matrices_stay_with_f_linear(products, monkeypatch):
    x, weight = torch.randn(2, 64), torch.randn(100, 64)
    linear_map(x.bfloat16(), weight.bfloat16())
    linear_map(x.double(), weight.double())
    monkeypatch.setattr(processor, "LARGE_MATRIX", weight.numel() + 1)
    linear_map(x, weight)
    monkeypatch.setattr(processor, "LARGE_MATRIX", weight.numel())
    monkeypatch.setattr(processor, "prefers_onednn", lambda: False)
    linear_map(x, weight)
    assert not products
    monkeypatch.setattr(processor, "prefers_onednn", lambda: True)
    linear_map(x, weight)
    assert products == [x.shape]


@pytest.mark.parametrize(("maker", "wanted"), [("AuthenticAMD", True), ("GenuineIntel", False), (None, True)])
def test_the_maker_of_the_processor_decides(maker, wanted, tmp_path, monkeypatch):
    """Without a file of the kernel, Python's description has its name."""
    if maker is not None:
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: {maker}\n")
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.processor", lambda: "AMD64 Family 25 Model 17 Stepping 1, AuthenticAMD")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert prefers_onednn.__wrapped__() is wanted
