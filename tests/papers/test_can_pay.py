"""Organization can pay where it should: a property of a task and its teacher, without a model."""

from __future__ import annotations

from functools import cache
from itertools import groupby
from statistics import fmean

import pytest

from orgthink.training.coldstart.countdown import tokens
from papers import structures
from papers.structures import shortest


def ratios(task: str) -> dict[int, float]:
    """Numbers of a problem → the shortest critical path of random structures ÷ that of sequential scans."""
    found = shortest(task, 24, 30, cache(tokens))
    by_size = {
        numbers: [pair for _, pairs in each for pair in pairs]
        for numbers, each in groupby(found.items(), lambda i: i[0][0])
    }
    return {
        n: fmean(best.path for _, best in each) / fmean(alone.path for alone, _ in each) for n, each in by_size.items()
    }


def test_dividing_a_scan_of_six_numbers_shortens_it_and_of_three_hardly():
    found = ratios("countdown-all")
    assert found[3] >= 0.85 and found[6] <= 0.7
    assert found[3] > found[4] > found[5] > found[6]


def test_countdown_small_gains_little_since_its_scans_end_early():
    assert fmean(ratios("countdown-small").values()) > 0.85


def test_a_missing_tokenizer_is_one_line_that_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structures, "fetched", lambda name: None)
    with pytest.raises(SystemExit, match="orgthink models fetch smollm2"):
        structures.main()
