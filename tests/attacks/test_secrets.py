"""Keys and passwords: no message, no log and no file repeats them."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from attacks.catalogue import Attack, each
from attacks.serving import serving
from loopback import MODEL, answers, loopback, says, sends

from orgthink.cli import main
from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.engines.engine import Context, EngineError
from orgthink.evaluation.plan import Evaluation
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.record.episode import Message, Sampling
from orgthink.record.folder import RunFolder
from orgthink.tools.bubblewrap import SandboxLimits
from orgthink.tools.sandbox_fusion import SandboxFusion
from orgthink.tools.search import RetrieverClient
from orgthink.util import redaction
from orgthink.util.errors import ToolError, UserError
from orgthink.util.http import RetryPolicy

KEY = "sk-ver/y+secret-0123456789"
PASSWORD = "zebra-quill-battery"
ONCE = RetryPolicy(silence=5.0, attempts=1, first_delay=0.01)


@pytest.fixture(autouse=True)
def nothing_hidden_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_forms", ())
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def hides(text: str, secret: str = KEY) -> bool:
    """Whether neither the secret nor a beginning of it stands there."""
    return secret[:6] not in text and secret[-6:] not in text


MESSAGES = "The key stands in no message, whoever repeats it, and not by half"
LINE = "one line with … in its place"


@each(
    Attack("a stream's error repeats the key", MESSAGES, LINE, sends(json.dumps({"error": {"message": KEY}}))),
    Attack("an error without a message repeats the key", MESSAGES, LINE, sends(json.dumps({"error": {"key": KEY}}))),
    Attack(
        "a redirect points to a URL with the key",
        MESSAGES,
        "the URL without its query",
        answers(307, "", Location=f"http://127.0.0.1:1/?key={KEY}"),
    ),
)
async def test_a_server_repeats_the_key(attack: Attack) -> None:
    async with loopback(attack.given) as server:
        engine = await EndpointEngine.open(server.url, MODEL, api_key=KEY, retry_policy=ONCE)
        messages = (Message("user", "Hi"),)
        with pytest.raises(EngineError) as caught:
            async for _ in engine.stream(Context(messages, [engine.prompt(messages)]), Sampling(9)):
                pass
        await engine.aclose()
    said = str(caught.value)
    assert hides(said) and "\n" not in said
    assert base64.b64encode(KEY.encode()).decode()[:12] not in said
    assert quote(KEY, safe="")[:10] not in said


async def retrieves(url: str) -> str:
    with pytest.raises(ToolError) as caught:
        await RetrieverClient(url, retry_policy=ONCE).retrieve(["q"], 1)
    return str(caught.value)


async def runs_code(url: str) -> str:
    with pytest.raises(ToolError) as caught:
        await SandboxFusion(url, SandboxLimits(), ONCE).run("1")
    return str(caught.value)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("corpus", f"https://me:{PASSWORD}@api.example.com/v1"),
        ("corpus", f"https://{PASSWORD}@api.example.com/v1"),
        ("corpus", f"https://me:{PASSWORD}@x@api.example.com/v1"),
        ("corpus", f"https://${{ME}}:{PASSWORD}@host/v1"),
        ("corpus", f"https://api.example.com/v1?x=1&api-key={PASSWORD}"),
        ("corpus", f"https://h/v1;token={PASSWORD}"),
        ("corpus", f"postgresql://me:{PASSWORD}@h/db"),
        ("servers", f"env TOKEN={PASSWORD} server"),
        ("servers", f"docker run --env=MYSQL_PWD={PASSWORD} image"),
        ("servers", f"server --api-key {PASSWORD}"),
        ("servers", f"server --header 'Authorization: Bearer {PASSWORD}'"),
        ("servers", f'server \'{{"env": {{"KEY": "{PASSWORD}"}}}}\''),
        ("servers", f"sh -c 'export TOKEN={PASSWORD}; exec server'"),
        ("servers", f"proxy https://me:{PASSWORD}@host/mcp"),
    ],
)
def test_a_literal_secret_in_settings_is_refused(setting: str, value: str, tmp_path: Path):
    settings = {"suite": {"corpus": value}} if setting == "corpus" else {"servers": [value]}
    plan = Evaluation("countdown", {"s": OrganizationSpec("paramanager", settings)}, 1)
    with pytest.raises(UserError, match=f"{setting} contains a ") as caught:
        RunFolder.create(tmp_path / "run", "eval", plan)
    assert hides(str(caught.value), PASSWORD) and not (tmp_path / "run").exists()


@pytest.mark.parametrize("where", ["environment", "role", "corpus"])
def test_a_url_with_a_password_is_refused_by_the_command_line(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    url, more = f"http://me:{PASSWORD}@127.0.0.1:9/v1", ["--organizations", "parallel"]
    if where == "environment":
        monkeypatch.setenv("OPENAI_BASE_URL", url)
    else:
        more += ["--url", "http://127.0.0.1:9/v1"]
    if where == "role":
        more += ["--roles", f"thinker={MODEL}@{url}"]
    if where == "corpus":
        more = ["--url", "http://127.0.0.1:9/v1", "--organizations", "paramanager", "--set", f"suite.corpus={url}"]
    out = tmp_path / "run"
    assert main(["eval", "--task", "countdown", "--n", "1", "--model", MODEL, "--out", str(out), *more]) == 2
    said = "".join(capfd.readouterr())
    assert hides(said, PASSWORD) and not (out / "config.json").exists()


@each(
    Attack(
        "an MCP tool returns its server's token",
        "What a tool returns goes to the model without secrets",
        "… in its place",
        f"bearer {PASSWORD}",
    )
)
async def test_an_mcp_tool_returns_a_token(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mcp")
    monkeypatch.setenv("ORGTHINK_TOKEN", PASSWORD)
    from orgthink.tools.mcp import McpTool, mcp_tools

    server = Path(__file__).parents[1] / "tools" / "mcp_server.py"
    tools = {tool.name: tool for tool in await mcp_tools(f"env TOKEN=${{ORGTHINK_TOKEN}} {sys.executable} {server}")}
    echo = tools["echo"]
    assert isinstance(echo, McpTool)
    assert (await echo.call({"text": attack.given})).text == "bearer …\nover"


FOLLOWED = "A redirect is not followed: nobody gets the key but the server that was named"


@each(
    Attack("a server redirects the list of its models elsewhere", FOLLOWED, LINE, 301),
    Attack("a server redirects and asks to repeat the request", FOLLOWED, LINE, 307),
    Attack("a server redirects for good and asks to repeat the request", FOLLOWED, LINE, 308),
)
async def test_a_redirect_elsewhere(attack: Attack) -> None:
    asked = list[bytes]()

    async def listens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(1))

    async def redirects(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        there = f"http://127.0.0.1:{elsewhere.sockets[0].getsockname()[1]}/v1"
        head = f"HTTP/1.1 {attack.given} x\r\nLocation: {there}\r\nContent-Length: 0\r\n\r\n"
        writer.write(head.encode())
        await writer.drain()

    async with (
        await asyncio.start_server(listens, "127.0.0.1", 0) as elsewhere,
        await asyncio.start_server(redirects, "127.0.0.1", 0) as server,
    ):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        with pytest.raises(EngineError, match="has moved"):
            await EndpointEngine.open(url, MODEL, api_key=KEY, retry_policy=ONCE)
    assert asked == []


TOOLS_KEY = "The key goes to servers of models, and to no other"


@each(
    Attack("a retriever records the headers that it gets", TOOLS_KEY, "no key among them", retrieves),
    Attack("a sandbox records the headers that it gets", TOOLS_KEY, "no key among them", runs_code),
)
async def test_who_gets_the_key(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    heads = list[bytes]()

    async def listens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with await asyncio.start_server(listens, "127.0.0.1", 0) as server:
        await attack.given(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert heads and not any(b"uthorization" in head or KEY.encode() in head for head in heads)


FILES = "No file of a run holds the key, though a model said it"


@each(
    Attack("a teacher says the key in its traces", FILES, "… in its place", ["synth", "--task", "countdown"]),
    Attack("a model says the key in an evaluation", FILES, "… in its place",
           ["eval", "--task", "countdown", "--organizations", "sequential"]),
)  # fmt: skip
def test_files_of_a_run(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    out = tmp_path / "run"
    with serving(*[says(f"<ANSWER> {KEY} </ANSWER>")] * 3) as server:
        assert main([*attack.given, "--n", "1", "--url", server.url, "--out", str(out)]) == 0
    main(["view", str(out)])
    for file in out.iterdir():
        assert hides(file.read_bytes().decode(errors="replace")), file
