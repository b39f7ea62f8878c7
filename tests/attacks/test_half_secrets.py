"""Servers of tools that repeat a secret where somebody cuts their text: no half of it is left."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each

from orgthink.grammar.toolcall import cut_middle
from orgthink.tools.sandbox import runner_named
from orgthink.tools.schema import Parameters
from orgthink.tools.search import look_up, retriever_named
from orgthink.tools.tool import MOST_RETURNED
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


async def ran(url: str) -> str:
    return (await runner_named(url).run("print(1)")).text


async def opened(url: str) -> str:
    pytest.importorskip("mcp")
    from orgthink.tools.mcp import mcp_tools

    with pytest.raises(UserError) as caught:
        await mcp_tools(url)
    return str(caught.value)


FOUND = {"contents": ("x" * (MOST_RETURNED // 2 - 10) + KEY).ljust(2 * MOST_RETURNED, "y")}
PRINTED = {"status": "Finished", "stdout": "x" * (64 * 1024 - 10) + KEY}


@each(
    Attack("a retriever repeats its password where passages are cut", WHOLE, GONE,
           (searched, {"result": [[{"document": FOUND, "score": 1}]]})),
    Attack("a server of programs repeats its password where output is cut", WHOLE, GONE,
           (ran, {"status": "Success", "run_result": PRINTED})),
    Attack("an MCP server sends its password instead of a message", WHOLE, GONE, (opened, KEY + FAR)),
)  # fmt: skip
async def test_a_server_repeats_half_a_password(attack: Attack, caplog: pytest.LogCaptureFixture) -> None:
    ask, answer = attack.given
    with answering(json.dumps(answer).encode()) as port:
        text = await ask(f"http://me:{KEY}@127.0.0.1:{port}")
    assert hides(text) and hides(caplog.text)


@each(
    Attack("the login of a proxy, where an MCP server is reached by a URL", WHOLE, GONE, opened),
)  # fmt: skip
async def test_the_login_of_a_proxy(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ftp_proxy", f"http://me:{KEY}@h")  # which is not used here
    await attack.given("http://127.0.0.1:1")
    assert hides(redaction.redact(f"it is {KEY}"))


@contextmanager
def answering(body: bytes) -> Iterator[int]:
    """The port of a server that answers every request so."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


@each(
    Attack("a result is cut within a key for a manager", WHOLE, GONE, lambda text: cut_middle(text, 220)),
    Attack("an error of a schema is cut within a key", WHOLE, GONE, lambda text: schema_error(text[24:])),
)
def test_a_cut_within_a_key(attack: Attack) -> None:
    redaction.conceal(KEY)
    assert hides(attack.given(f"{FAR}{KEY}{FAR * 3}"))


def schema_error(right: str) -> str:
    """The error of an argument that is not the only right one."""
    pytest.importorskip("jsonschema")
    with pytest.raises(ValueError, match="is not one of") as caught:
        Parameters.from_schema({"type": "object", "properties": {"a": {"enum": [right]}}}).check({"a": "wrong"})
    return str(caught.value)
