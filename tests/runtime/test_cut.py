"""What comes back is cut to so many tokens, also for an engine that does not tell how many a text has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.engines.scripted import ScriptedEngine
from orgthink.record.episode import Sampling
from orgthink.runtime.agent import Agent, Backing
from orgthink.runtime.budget import Account


class Silent(ScriptedEngine):
    """Knows no ids, as a server that is reached through its chat."""

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> Any:
        return text, None


def agent(engine: ScriptedEngine) -> Agent:
    backing = Backing(engine, Sampling(9))
    return Agent("root", (), backing, Account(), lambda: 0.0, lambda *_: None, "")


@pytest.mark.parametrize("text", ["7" * 60_000, "seven " * 10_000, "\u4e03" * 20_000, "\ud800" * 20_000])
def test_without_ids_three_bytes_are_a_token(text: str):
    kept = agent(Silent([])).cut(text, 4096)
    assert text.startswith(kept)
    assert 4095 * 3 - 6 <= len(kept.encode(errors="surrogatepass")) <= 4096 * 3


@given(st.text(), st.integers(1, 20))
def test_what_is_short_enough_stays_whole(text: str, tokens: int):
    kept = agent(Silent([])).cut(text, tokens)
    assert text.startswith(kept) and len(kept.encode()) <= 3 * tokens
    assert kept == text or len(text.encode()) > 3 * tokens


def test_ids_are_counted_where_they_are_known():
    assert agent(ScriptedEngine([])).cut("o " * 100, 7).split() == ["o"] * 7
