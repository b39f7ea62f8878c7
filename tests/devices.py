"""The devices that tests are repeated on."""

from __future__ import annotations

import pytest
import torch

CUDA = pytest.param(
    "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: nothing to test")]
)
"""A parameter: a test with it runs only on a GPU, and only in `make test-gpu`."""
