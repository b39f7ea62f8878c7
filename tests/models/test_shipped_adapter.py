"""The adapter in examples/ teaches SmolLM2-135M to organize."""

from __future__ import annotations

from pathlib import Path

import pytest

from orgthink.cli import main
from orgthink.measure.accuracy import has_format_error
from orgthink.measure.usage import forks
from orgthink.record.folder import RunFolder

ADAPTER = Path(__file__).parents[2] / "examples" / "smollm2-countdown"


def test_it_is_small():
    assert sum(file.stat().st_size for file in ADAPTER.iterdir()) <= 10_000_000


@pytest.mark.thorough
def test_it_forks_and_joins(smollm2, tmp_path):
    given = ["eval", "--task", "countdown-small", "--organizations", "asyncthink", "--model", str(ADAPTER), "--n", "4"]
    assert main([*given, "--temperature", "0", "--out", str(tmp_path / "run")]) == 0
    folder = RunFolder.open(tmp_path / "run")
    episodes = list(folder.episodes())
    assert sum(forks(episode) for episode in episodes) >= 2, "the untrained model never forks"
    assert sum(not has_format_error(episode) and episode.answer is not None for episode in episodes) >= 2
