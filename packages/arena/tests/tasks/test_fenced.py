"""The last fenced block of an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orgthink_arena.tasks.bench.fenced import last_block

TEXTS = st.text(st.sampled_from("`ab \n~"), max_size=60)


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("```python\nx = 1\n```", "x = 1"),
        ("a\n```\nx\n```\nb\n```py\ny\n\nz\n```\nc", "y\n\nz"),
        ("```\nx\n```\n```\ny", None),
        ("```\nx", None),
        ("no fence", None),
        ("", None),
        ("```x```", None),
        ("```python\nprint('''\n````''')\n```", "print('''\n````''')"),
        ("````\n```\nx\n```\n````", "```\nx\n```"),
        ("  ```python\nx\n  ``` ", "x"),
        ("```\n```", ""),
        ("```\nx = 1\f\ny = '\u2028'\n```", "x = 1\f\ny = '\u2028'"),
        ("```\r\nx\r\ny\r\n```\r\n", "x\ny"),
        ("```python title=`a`\nx\n```\n", None),
    ],
)
def test_the_last_block(text, block):
    assert last_block(text) == block


@given(TEXTS, st.text(st.sampled_from("ab \n"), max_size=30))
def test_whatever_stands_before_a_block(before, content):
    """It is found, unless it closes or is within one that stands open."""
    found = last_block(f"{before}\n``````\n{content}\n``````")
    assert found in (None, content.removesuffix("\n"), content) or "```" in before
