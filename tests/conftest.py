"""Sample episodes, random programs, small tasks and the loopback server serve the tests of several folders."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

FOLDERS = (
    ".",
    "tasks",
    "view",
    "export",
    "measure",
    "engines",
    "training",
    "training/marsrl",
    "coldstart",
    "organizations",
    "models",
)
"""Where the helpers lie."""

sys.path += [str(Path(__file__).parent / folder) for folder in FOLDERS]

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test waits for a network

settings.register_profile("quick", deadline=None, max_examples=15)  # a busy machine is no failure
settings.register_profile("thorough", deadline=None, max_examples=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores both for a job in the background
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if config.option.markexpr.startswith("gpu"):  # make test-gpu
        import torch

        if not torch.cuda.is_available():
            pytest.exit("no GPU: nothing to test here", returncode=0)


@pytest.fixture(scope="session")
def tiny_policy() -> Iterator[Path]:
    """The folder of a model that has learned a little of everything, at `tiny_policy.TINY`."""
    from tiny_policy import TINY, write_tiny_policy

    write_tiny_policy()
    yield TINY
    shutil.rmtree(TINY)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of SmolLM2-135M-Instruct, a real model. Without it the test is skipped."""
    from orgthink.models.hub import fetched

    return fetched("smollm2") or pytest.skip("SmolLM2 is not on this machine: make smollm2")
