"""Servers of tools that repeat a secret where somebody cuts their text: no half of it is left."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each

from orgthink.grammar.toolcall import cut_middle
from orgthink.tools.schema import Parameters
from orgthink.tools.search import look_up, retriever_named
from orgthink.util import redaction
from orgthink.util.errors import UserError
from orgthink.util.terminal import MOST_QUOTED

pytestmark = pytest.mark.thorough

KEY = "zebra-quill-battery-staple"
FAR = "x" * 100
"""Stands before a secret, or behind it, in a text that is too long."""
WHOLE = "What a server of tools says is searched for secrets before anybody cuts it"
GONE = "nothing of it is left"


@pytest.fixture(autouse=True)
def nothing_hidden_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_forms", ())


def hides(text: str) -> bool:
    """Whether no third of the key stands there."""
    return not any(KEY[i : i + 8] in text for i in range(len(KEY) - 7))


@each(
    Attack("an MCP server prints its token where messages are expected", WHOLE, GONE, f"print({KEY + FAR!r})"),
    Attack("an MCP server sends its token in news that is none", WHOLE, GONE,
           f"print(json.dumps({{'jsonrpc': '2.0', 'method': 'notifications/progress', 'params': {KEY + FAR!r}}}))"),
    Attack("an MCP server fails with a long line, whose end begins within its token", WHOLE, GONE,
           f"sys.exit({FAR + KEY!r} + 'y' * {4 * MOST_QUOTED - 14})"),
)  # fmt: skip
async def test_an_mcp_server_prints_half_a_token(
    attack: Attack, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mcp")
    monkeypatch.setenv("ORGTHINK_TOKEN", KEY)
    from orgthink.tools.mcp import mcp_tools

    server = tmp_path / "server.py"
    server.write_text(f"import json, sys\n{attack.given}\nsys.exit('the end')\n")
    with pytest.raises(UserError, match="it said last: ") as caught:
        await mcp_tools(f"env TOKEN=${{ORGTHINK_TOKEN}} {sys.executable} {server}")
    assert hides(str(caught.value)) and hides(caplog.text)


async def searched(url: str) -> str:
    return await look_up(retriever_named(url), ["?"], 1)


@each(
    Attack("a result is cut within a key for a manager", WHOLE, GONE, lambda text: cut_middle(text, 220)),
    Attack("an error of a schema is cut within a key", WHOLE, GONE, lambda text: schema_error(text[24:])),
)
def test_a_cut_within_a_key(attack: Attack) -> None:
    redaction.conceal(KEY)
    assert hides(attack.given(f"{FAR}{KEY}{FAR * 3}"))


def schema_error(wrong: str) -> str:
    """The error of an argument that is not a number."""
    with pytest.raises(ValueError, match="is not of type") as caught:
        Parameters.from_schema({"type": "object", "properties": {"a": {"type": "integer"}}}).check({"a": wrong})
    return str(caught.value)
