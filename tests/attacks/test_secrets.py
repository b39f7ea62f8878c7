"""Keys and passwords: no message, no log and no file repeats them."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from attacks.catalogue import Attack, each
from attacks.serving import serving
from loopback import MODEL, Exchange, answers, loopback, says, sends
from rich.console import Console

import orgthink
from orgthink.cli import main
from orgthink.cli.lanes import Picture
from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.engines.engine import Context, EngineError
from orgthink.evaluate.evaluation import Evaluation, OrganizationSpec
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import CancelSource, Episode, Message, Origin, Problem, Sampling, Span, StopReason, Trace
from orgthink.record.episode_json import dump, load
from orgthink.record.folder import RunFolder
from orgthink.record.journal import LONGEST_TRACEBACK
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.serve.exchange import encoded
from orgthink.tools.sandbox_fusion import SandboxFusion
from orgthink.tools.search import RetrieverClient
from orgthink.training.coldstart.pairs import pairs_of, read_pairs
from orgthink.training.coldstart.pairs import write as write_pairs
from orgthink.util import redaction, secrets
from orgthink.util.errors import Failure, ToolError, UserError
from orgthink.util.http import HttpClient, HttpResponse, RetryPolicy, server_url

KEY = "sk-ver/y+secret-0123456789"
PASSWORD = "zebra-quill-battery"
ONCE = RetryPolicy(read=2.0, attempts=1, first_delay=0.01)


@pytest.fixture(autouse=True)
def nothing_hidden_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_forms", ())
    monkeypatch.setattr(secrets, "_given", {})
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def hides(text: str, secret: str = KEY) -> bool:
    """Whether neither the secret nor a beginning of it stands there."""
    return secret[:6] not in text and secret[-6:] not in text


def typed_as(content_type: str):
    async def play(exchange: Exchange) -> None:
        await exchange.reply(200, "x", Content_Type=content_type)

    return play


def raw(text: str):
    """A response as bytes, however malformed, and the end of the connection."""

    async def play(exchange: Exchange) -> None:
        exchange._writer.write(text.encode())
        await exchange._writer.drain()
        exchange.cut()

    return play


async def in_small_parts(exchange: Exchange) -> None:
    await exchange.begin()
    text = f"data: {json.dumps({'error': {'message': f'no {KEY}'}})}\n\n".encode()
    for byte in text:
        exchange._writer.write(b"1\r\n" + bytes([byte]) + b"\r\n")
        await exchange._writer.drain()
    await exchange.end()


def finish(reason: str) -> str:
    return json.dumps({"choices": [{"delta": {"content": "a"}, "finish_reason": reason}]})


MESSAGES = "The key stands in no message, whoever repeats it, and not by half"
LINE = "one line with … in its place"


@each(
    Attack("a stream's error repeats the key", MESSAGES, LINE, sends(json.dumps({"error": {"message": KEY}}))),
    Attack("an error without a message repeats the key", MESSAGES, LINE, sends(json.dumps({"error": {"key": KEY}}))),
    Attack("a content type repeats the key", MESSAGES, LINE, typed_as(f"text/{KEY}")),
    Attack("a finish reason repeats the key", MESSAGES, LINE, sends(finish(KEY))),
    Attack("an event that is no JSON repeats the key", MESSAGES, LINE, sends(f"Bearer {KEY}")),
    Attack("the 80th character of a bad event lies within the key", MESSAGES, LINE, sends("x" * 70 + KEY)),
    Attack("the 300th character of an error lies within the key", MESSAGES, LINE, answers(500, "x" * 290 + KEY)),
    Attack("a refusal repeats the key", MESSAGES, LINE, answers(400, f"for {KEY}: no")),
    Attack("a refused key is repeated", MESSAGES, LINE, answers(401, f"Authorization: Bearer {KEY}")),
    Attack("a spent quota names the key", MESSAGES, LINE, answers(402, f"{KEY} is spent")),
    Attack("an error holds the percent-encoded key", MESSAGES, LINE, answers(500, quote(KEY, safe=""))),
    Attack("an error holds the key in base64", MESSAGES, LINE, answers(500, base64.b64encode(KEY.encode()).decode())),
    Attack("an error spells the key as JSON within JSON", MESSAGES, LINE, answers(500, json.dumps({"k": KEY}))),
    Attack("the key comes one byte a chunk", MESSAGES, LINE, in_small_parts),
    Attack("an error is the key a thousand times", MESSAGES, LINE, answers(500, KEY * 1000)),
    Attack("an error puts the key between markup", MESSAGES, LINE, answers(500, f"<b>{KEY}</b>")),
    Attack(
        "a malformed header repeats the key", MESSAGES, LINE, raw(f"HTTP/1.1 200 OK\r\nAuthorization {KEY}\r\n\r\n")
    ),
    Attack("a status line is the key", MESSAGES, LINE, raw(f"{KEY}\r\n\r\n")),
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


async def echo_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What a debugging proxy does: its error page shows the request."""
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 502 x\r\nConnection: close\r\n\r\n<pre>" + head + b"</pre>")
    await writer.drain()
    writer.close()


async def retrieves(url: str) -> str:
    with pytest.raises(ToolError) as caught:
        await RetrieverClient(url, retry_policy=ONCE).retrieve(["q"], 1)
    return str(caught.value)


async def runs_code(url: str) -> str:
    with pytest.raises(ToolError) as caught:
        await SandboxFusion(url, patience=ONCE).run("1")
    return str(caught.value)


async def decodes(url: str) -> str:
    with pytest.raises(EngineError) as caught:
        await EndpointEngine.open(url, MODEL, retry_policy=ONCE)
    return str(caught.value)


PASSWORDS = "A password in a URL stands in no message, in no form that HTTP gives it"


@each(
    Attack("a server echoes the login of its URL", PASSWORDS, LINE, (decodes, f"me:{PASSWORD}@")),
    Attack("a server echoes a login without a password", PASSWORDS, LINE, (decodes, f"{PASSWORD}@")),
    Attack("a server echoes a login with an encoded password", PASSWORDS, LINE, (decodes, f"me:{PASSWORD}%2F%40@")),
    Attack("a retriever echoes the login of its URL", PASSWORDS, LINE, (retrieves, f"me:{PASSWORD}@")),
    Attack("a sandbox echoes the login of its URL", PASSWORDS, LINE, (runs_code, f"me:{PASSWORD}@")),
)
async def test_a_server_echoes_a_login(attack: Attack) -> None:
    talk, login = attack.given
    async with await asyncio.start_server(echo_headers, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        said = await talk(f"http://{login}127.0.0.1:{port}")
    assert "answered 502" in said and hides(said, PASSWORD)
    for whole in (f"me:{PASSWORD}", f"{PASSWORD}:", f"me:{PASSWORD}/@"):
        assert base64.b64encode(whole.encode()).decode()[:16] not in said


ODD = "zebra<quill>!b{a}tt'ery"
"""A secret of which each client of HTTP percent-encodes other characters."""


async def says_where(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Its error page names what was asked for."""
    target = (await reader.readuntil(b"\r\n\r\n")).split()[1]
    writer.write(b"HTTP/1.1 502 x\r\nConnection: close\r\n\r\ncannot answer " + target)
    await writer.drain()
    writer.close()


@each(
    Attack("a server names the query of its URL, half encoded", PASSWORDS, LINE, (decodes, f"/v1?api-key={ODD}")),
    Attack("a server names a key of letters beyond ASCII, half encoded", PASSWORDS, LINE,
           (decodes, f"/v1?api-key={ODD}ö")),
    Attack("a server names the path of its URL, half encoded", PASSWORDS, LINE, (decodes, f"/v1;token={ODD}")),
    Attack("a retriever names the query of its URL, half encoded", PASSWORDS, LINE, (retrieves, f"/?api-key={ODD}")),
    Attack("a sandbox names the query of its URL, half encoded", PASSWORDS, LINE, (runs_code, f"/?api-key={ODD}")),
)  # fmt: skip
async def test_a_server_names_what_was_asked_for(attack: Attack) -> None:
    talk, place = attack.given
    async with await asyncio.start_server(says_where, "127.0.0.1", 0) as server:
        said = await talk(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{place}")
    assert "cannot answer" in said and "zebra" not in said and "quill" not in said and "!b" not in said


@each(
    Attack(
        "a proxy echoes its login",
        "The password of a proxy, which the environment names, stands in no message",
        LINE,
        f"me:{PASSWORD}",
    )
)
async def test_a_proxy_echoes_its_login(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await asyncio.start_server(echo_headers, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("http_proxy", f"http://{attack.given}@127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        said = await decodes("http://model.invalid/v1")
    assert "answered 502" in said and hides(said, PASSWORD)
    assert base64.b64encode(attack.given.encode()).decode()[:16] not in said


SENT = "Space around a key, as a file or a shell leaves it there, does not count"
REFUSED_KEY = "A key that no header can hold is refused before it is sent, without being shown"


@each(
    Attack("a key that ends in a newline", SENT, "the key is sent without it", f"{KEY}\n"),
    Attack("a key that ends in a carriage return and a newline", SENT, "the key is sent without them", f"{KEY}\r\n"),
    Attack("a key between spaces and a tab", SENT, "the key is sent without them", f" {KEY}\t "),
)
async def test_space_around_a_key(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", attack.given)
    async with loopback() as server:
        server.key = KEY
        await (await EndpointEngine.open(server.url, MODEL, retry_policy=ONCE)).aclose()


@each(
    Attack("a key with a header behind a line break", REFUSED_KEY, "exit code 2", f"{KEY}\r\nX-Evil: 1"),
    Attack("a key with a NUL", REFUSED_KEY, "exit code 2", f"{KEY}\0x"),
    Attack("a key with a zero-width space", REFUSED_KEY, "exit code 2", f"{KEY}\u200bx"),
    Attack("a key with a letter beyond ASCII", REFUSED_KEY, "exit code 2", f"{KEY}é"),
    Attack("two keys on one line", REFUSED_KEY, "exit code 2", f"{KEY} {KEY}"),
    Attack("a key with an escape sequence", REFUSED_KEY, "exit code 2", f"\x1b[31m{KEY}"),
)
def test_a_key_that_no_header_holds(
    attack: Attack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "\0" in attack.given:  # no environment holds it
        with pytest.raises(ValueError, match="the key") as caught:
            HttpClient(server_url("http://host"), failure=ToolError, key=attack.given)
        assert hides(str(caught.value))
        return
    monkeypatch.setenv("OPENAI_API_KEY", attack.given)
    assert main(["run", "x", "--url", "http://127.0.0.1:9/v1", "--model", "m"]) == 2
    out, err = capsys.readouterr()
    assert "the key holds a character" in err and err.count("\n") == 1 and hides(out + err)


@each(
    Attack(
        "an empty key of spaces",
        "A key of nothing but space is none",
        "the server is asked without one",
        " \n",
    )
)
async def test_a_key_of_space(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", attack.given)
    async with loopback() as server:
        server.key = "another"
        with pytest.raises(EngineError, match="set OPENAI_API_KEY"):
            await EndpointEngine.open(server.url, MODEL, retry_policy=ONCE)


@each(
    Attack("a server calls its models by the key", MESSAGES, LINE, [{"id": KEY}, {"id": f"{KEY}-2"}]),
    Attack("a server has the key as a part of a model's name", MESSAGES, LINE, [{"id": f"a/{KEY}/b"}, {"id": "c"}]),
)
async def test_the_key_is_a_model(attack: Attack) -> None:
    async def lists(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps({"data": attack.given}).encode()
        writer.write(b"HTTP/1.1 200 x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()

    async with await asyncio.start_server(lists, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(EngineError, match="name a model") as caught:
            await EndpointEngine.open(f"http://127.0.0.1:{port}", api_key=KEY, retry_policy=ONCE)
        server.close()
    assert hides(str(caught.value))


RECORDED = "No record holds the key, though a model or an error said it"


async def episode_of(*plays) -> Episode:
    async with loopback(*plays) as server:
        engine = await EndpointEngine.open(server.url, MODEL, api_key=KEY, retry_policy=ONCE)
        problem = Problem("p", "free", "What?")
        try:
            return await attempt(Sequential(), problem, Backing(engine, Sampling(50)))
        finally:
            await engine.aclose()


async def key_in_pieces(exchange: Exchange) -> None:
    await exchange.begin()
    for piece in ("<ANSWER> ", *KEY, " </ANSWER>"):
        await exchange.say(piece)
    await exchange.say("", "stop")
    await exchange.end()


@each(
    Attack("a model says the key", RECORDED, "… in the record", says(f"it is {KEY} , said I")),
    Attack("a model says the key one character an event", RECORDED, "… in the record", key_in_pieces),
    Attack("a stream breaks with the key as its error", RECORDED, "… in the record", answers(400, KEY)),
    Attack(
        "a model says the key in base64", RECORDED, "… in the record", says(base64.b64encode(KEY.encode()).decode())
    ),
)
async def test_the_key_in_a_record(attack: Attack, tmp_path: Path) -> None:
    episode = await episode_of(attack.given)
    line = dump(episode)
    assert hides(line.decode()) and base64.b64encode(KEY.encode())[:16] not in line
    assert "…" in line.decode() and load(line).id == episode.id


WRITTEN = "A password is found as texts, JSON and Python write it, whatever letters it has"


@each(
    Attack("a password with a quotation mark and a letter beyond ASCII", WRITTEN, "… in the record", 'zebra-"quill"-ö'),
    Attack("a password with both quotation marks and a letter beyond ASCII", WRITTEN, "… in the record",
           "zebra-\"quill'-ö"),
    Attack("a password with a backslash, a quotation mark and a picture", WRITTEN, "… in the record",
           'zebra-\\"quill-🦓'),
)  # fmt: skip
async def test_a_password_of_any_letters(attack: Attack) -> None:
    async def play(exchange: Exchange) -> None:
        login = base64.b64decode(exchange.headers["authorization"].split()[1]).decode()
        await says(f"you are {login}")(exchange)

    async with loopback(play) as server:
        url = server.url.replace("://", f"://me:{quote(attack.given)}@")
        engine = await EndpointEngine.open(url, MODEL)
        episode = await attempt(Sequential(), Problem("p", "free", "Who?"), Backing(engine, Sampling(50)))
        await engine.aclose()
    assert attack.given in episode.root.spans[-1].text
    for line in (dump(episode).decode(), encoded({"text": episode.root.spans[-1].text}).decode()):
        assert "zebra" not in line and "quill" not in line and "…" in line


@each(
    Attack(
        "a key of digits stands in the numbers of a record",
        "Only texts are searched for secrets: numbers and names stay, and records stay readable",
        "the record is whole",
        "12345678",
    )
)
def test_a_key_of_digits(attack: Attack) -> None:
    redaction.conceal(attack.given)
    found = json.loads(redaction.redact_json(json.dumps({"n": 12345678, "12345678": "is 12345678"})))
    assert found == {"n": 12345678, "12345678": "is …"}


@each(
    Attack(
        "a placeholder such as EMPTY is the key",
        "A text with fewer than 8 characters is no secret: it would be blotted out of every text",
        "messages stay readable",
        "EMPTY",
    )
)
def test_a_placeholder_as_key(attack: Attack) -> None:
    HttpClient(server_url("http://host"), failure=ToolError, key=attack.given)
    assert str(Failure("EMPTY answer")) == "EMPTY answer"


STORED = "config.json holds the names of secrets, not their values"
NAMED = "${NAME} in config.json"


@each(
    Attack("a URL with a password", STORED, NAMED, f"https://me:{PASSWORD}@api.example.com/v1"),
    Attack("a URL with a key for a user", STORED, NAMED, f"https://{PASSWORD}@api.example.com/v1"),
    Attack("a URL with an @ in its password", STORED, NAMED, f"https://me:{PASSWORD}@x@api.example.com/v1"),
    Attack("a URL with a key in its query", STORED, NAMED, f"https://api.example.com/v1?api-key={PASSWORD}"),
    Attack("a URL with a query that has no name", STORED, NAMED, f"https://api.example.com/v1?{PASSWORD}"),
    Attack("a URL with two keys", STORED, NAMED, f"https://h/v1?key={PASSWORD}&key=2{PASSWORD}&sig=3{PASSWORD}"),
    Attack("a password on a port in capitals", STORED, NAMED, f"HTTPS://ME:{PASSWORD}@[::1]:8000"),
    Attack("a URL with ?pwd=…", STORED, NAMED, f"https://h/v1?pwd={PASSWORD}"),
    Attack("a URL with ?pass=…", STORED, NAMED, f"https://h/v1?pass={PASSWORD}"),
    Attack("a URL with ?userPin=…", STORED, NAMED, f"https://h/v1?userPin={PASSWORD}"),
    Attack("a URL with ?session=…", STORED, NAMED, f"https://h/v1?session={PASSWORD}"),
    Attack("a URL with ?jwt=…", STORED, NAMED, f"https://h/v1?jwt={PASSWORD}"),
    Attack("a URL with a code of base64 with a slash", STORED, NAMED, f"https://h/v1?code=ab/{PASSWORD}=="),
    Attack("a URL with base64 with a slash under any name", STORED, NAMED, f"https://h/v1?x=zebra-/{'Ab3' * 9}battery"),
    Attack("a URL with a token behind a `;` of its path", STORED, NAMED, f"https://h/v1;token={PASSWORD}"),
    Attack("a URL with a token behind a `;` of its query", STORED, NAMED, f"https://h/v1?x=1;token={PASSWORD}"),
    Attack("a URL with a secret behind `#`", STORED, NAMED, f"https://h/v1#{PASSWORD}"),
    Attack("a database's URL with a password", STORED, NAMED, f"postgresql://me:{PASSWORD}@h/db"),
    Attack("a URL with a password and no user", STORED, NAMED, f"redis://:{PASSWORD}@h:6379/0"),
    Attack("a URL with a password and a scheme with a `+`", STORED, NAMED, f"mongodb+srv://me:{PASSWORD}@h/db"),
    Attack("a websocket's URL with a key for a user", STORED, NAMED, f"ws://{PASSWORD}@h/db"),
)
def test_a_url_with_a_secret(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Evaluation("countdown", {"s": OrganizationSpec("sequential", {"suite": {"corpus": attack.given}})}, 1)
    folder = RunFolder.create(tmp_path / "run", "eval", plan)
    text = (folder.path / "config.json").read_text()
    assert hides(text, PASSWORD)
    (stored,) = re.findall(r'"corpus": "(.*)"', text)
    assert secrets.expand(stored) == attack.given
    monkeypatch.setattr(secrets, "_given", {})  # another process
    with pytest.raises(UserError, match=r"^set [A-Z_0-9 and]+ in the environment"):
        secrets.expand(stored)


COMMAND = f"{sys.executable} server.py"


@each(
    Attack("an MCP command with env TOKEN=…", STORED, NAMED, f"env TOKEN={PASSWORD} {COMMAND}"),
    Attack("an MCP command with a quoted token", STORED, NAMED, f"env 'TOKEN={PASSWORD} x y' {COMMAND}"),
    Attack("an MCP command of a container with -e TOKEN=…", STORED, NAMED, f"docker run -e TOKEN={PASSWORD} image"),
    Attack("an MCP command with --token=…", STORED, NAMED, f"{COMMAND} --token={PASSWORD}"),
    Attack("an MCP command with --api-key …", STORED, NAMED, f"{COMMAND} --api-key {PASSWORD}"),
    Attack("an MCP command with a header of authorization", STORED, NAMED,
           f"{COMMAND} --header 'Authorization: Bearer {PASSWORD}'"),
    Attack("an MCP command with --bearer …", STORED, NAMED, f"{COMMAND} --bearer {PASSWORD}"),
    Attack("an MCP command with a URL and its password", STORED, NAMED, f"proxy https://me:{PASSWORD}@host/mcp"),
    Attack("an MCP server's URL with a token", STORED, NAMED, f"https://host/mcp?token={PASSWORD}"),
    Attack("an MCP command with one name for two tokens", STORED, NAMED, f"env A={PASSWORD} A=2{PASSWORD} {COMMAND}"),
    Attack("an MCP command with env MYSQL_PWD=…", STORED, NAMED, f"env MYSQL_PWD={PASSWORD} {COMMAND}"),
    Attack("an MCP command with env DB_PASS=…", STORED, NAMED, f"env DB_PASS={PASSWORD} {COMMAND}"),
    Attack("an MCP command with env GITHUB_PAT=…", STORED, NAMED, f"env GITHUB_PAT={PASSWORD} {COMMAND}"),
    Attack("an MCP command with env AWS_SESSION=…", STORED, NAMED, f"env AWS_SESSION={PASSWORD} {COMMAND}"),
    Attack("an MCP command with a database's URL in its environment", STORED, NAMED,
           f"env DATABASE_URL=postgres://me:{PASSWORD}@h/db {COMMAND}"),
    Attack("an MCP command with --dsn=…", STORED, NAMED, f"{COMMAND} --dsn=postgres://me:{PASSWORD}@h/db"),
    Attack("an MCP command with --pass …", STORED, NAMED, f"{COMMAND} --pass {PASSWORD}"),
    Attack("an MCP command with --pwd=…", STORED, NAMED, f"{COMMAND} --pwd={PASSWORD}"),
    Attack("an MCP command with -p …", STORED, NAMED, f"{COMMAND} -p {PASSWORD}"),
    Attack("an MCP command with -k …", STORED, NAMED, f"{COMMAND} -k {PASSWORD}"),
    Attack("an MCP command with -u USER:PASSWORD", STORED, NAMED, f"{COMMAND} -u root:{PASSWORD}"),
    Attack("an MCP command with --proxy-user=USER:PASSWORD", STORED, NAMED, f"{COMMAND} --proxy-user=me:{PASSWORD}"),
    Attack("an MCP command with --pat …", STORED, NAMED, f"{COMMAND} --pat {PASSWORD}"),
    Attack("an MCP command with --jwt …", STORED, NAMED, f"{COMMAND} --jwt {PASSWORD}"),
    Attack("an MCP command with --passphrase …", STORED, NAMED, f"{COMMAND} --passphrase {PASSWORD}"),
    Attack("an MCP command with --authorization …", STORED, NAMED, f"{COMMAND} --authorization {PASSWORD}"),
    Attack("an MCP command with --env=TOKEN=…", STORED, NAMED, f"docker run --env=TOKEN={PASSWORD} image"),
    Attack("an MCP command with a key in JSON", STORED, NAMED,
           f"{COMMAND} --config '{{\"a\": 1, \"apiKey\": \"{PASSWORD}\"}}'"),
    Attack("an MCP command of a shell with TOKEN=…", STORED, NAMED, f"sh -c 'TOKEN={PASSWORD} exec {COMMAND}'"),
    Attack("an MCP command of a shell that exports a key", STORED, NAMED,
           f"bash -lc 'export API_KEY={PASSWORD}; exec {COMMAND} | tee \"$HOME/log\"'"),
    Attack("an MCP command of a shell with a token in quotation marks", STORED, NAMED,
           f"""sh -c "TOKEN='{PASSWORD} x' {COMMAND} --header 'Authorization: Bearer {PASSWORD}'" """),
    Attack("an MCP command of a shell with a token half in quotation marks", STORED, NAMED,
           f"""sh -c "TOKEN={PASSWORD}'x y' {COMMAND}" """),
    Attack("an MCP command with --token and base64", STORED, NAMED, f"{COMMAND} --token {PASSWORD}=="),
    Attack("an MCP command with an option of dotted words", STORED, NAMED, f"{COMMAND} --spring.ai.api-key={PASSWORD}"),
    Attack("an MCP command with a property of Java", STORED, NAMED, f"java -Dapi.key={PASSWORD} -jar server.jar"),
    Attack("an MCP command with env MY-TOKEN=…", STORED, NAMED, f"env MY-TOKEN={PASSWORD} {COMMAND}"),
    Attack("an MCP command with a header X-Password", STORED, NAMED, f"{COMMAND} --header 'X-Password: {PASSWORD}'"),
    Attack("an MCP command with a token that begins with a dash", STORED, NAMED, f"{COMMAND} --token -{PASSWORD}"),
    Attack("an MCP command with -e TOKEN:…", STORED, NAMED, f"{COMMAND} -e TOKEN:{PASSWORD}"),
    Attack("an MCP command with --header=Authorization:…", STORED, NAMED,
           f"{COMMAND} --header=Authorization:{PASSWORD}"),
    Attack("an MCP command with URLs in a list", STORED, NAMED,
           f"{COMMAND} --urls https://me:2{PASSWORD}@h1,https://me:{PASSWORD}@h2"),
    Attack("an MCP command with a URL in the query of a URL", STORED, NAMED,
           f"{COMMAND} 'https://h/?next=https://me:{PASSWORD}@h2&page=1'"),
    Attack("an MCP command with a header in a list of JSON", STORED, NAMED,
           f"{COMMAND} --config '{{\"a\": \"\", \"headers\": [\"Authorization: Bearer {PASSWORD}\"]}}'"),
    Attack("an MCP command with words of a command in a list of JSON", STORED, NAMED,
           f"{COMMAND} --config '{{\"args\": [\"-y\", \"--api-key\", \"{PASSWORD}\"]}}'"),
    Attack("an MCP command with keys in a list of JSON", STORED, NAMED,
           f"{COMMAND} --config='{{\"keys\": [\"{PASSWORD}\", {{\"x\": 1}}, \"2{PASSWORD}\"]}}'"),
    Attack("an MCP command of a shell with options before its script", STORED, NAMED,
           f"bash -c -e -- 'TOKEN={PASSWORD} exec {COMMAND}'"),
    Attack("an MCP command of a shell in a shell", STORED, NAMED,
           f"""sh -c "sh -c 'TOKEN={PASSWORD} exec {COMMAND}'" """),
)  # fmt: skip
def test_a_command_with_a_secret(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"s": OrganizationSpec("paramanager", {"servers": [attack.given]})}
    folder = RunFolder.create(tmp_path / "run", "eval", Evaluation("countdown", given, 1))
    config = json.loads((folder.path / "config.json").read_bytes())
    assert hides(json.dumps(config), PASSWORD)
    assert folder.config == config, "the process that began a run has it as others read it"
    (stored,) = config["settings"]["organizations"]["s"]["settings"]["servers"]
    assert secrets.words(stored) == shlex.split(attack.given)
    monkeypatch.setattr(secrets, "_given", {})  # another process
    with pytest.raises(UserError, match=r"^set [A-Z_0-9 and]+ in the environment"):
        secrets.words(stored)


SEEN = "What a server makes of its command line is hidden as well as what was typed"


@each(
    Attack("a header of authorization, of which the server repeats the key", SEEN, LINE,
           (f"{COMMAND} --header 'Authorization: Bearer {PASSWORD}'", PASSWORD)),
    Attack("a script behind `--`, of which the server repeats the token", SEEN, LINE,
           (f"sh -c -- 'TOKEN={PASSWORD} exec {COMMAND}'", PASSWORD)),
    Attack("the password of a URL as it was typed, percent-encoded", SEEN, LINE,
           (f"{COMMAND} postgresql://me:zebra%2fquill%2fbattery@h/db", "zebra%2fquill%2fbattery")),
    Attack("the password of a URL, decoded", SEEN, LINE,
           (f"{COMMAND} postgresql://me:zebra%2fquill%2fbattery@h/db", "zebra/quill/battery")),
    Attack("the password of the second URL of a list", SEEN, LINE,
           (f"{COMMAND} --urls https://me:2long-enough@h1,https://me:{PASSWORD}@h2", PASSWORD)),
    Attack("a text in JSON, decoded", SEEN, LINE,
           (f"""{COMMAND} '{{"token": "zebra\\u002dquill-battery"}}'""", PASSWORD)),
    Attack("a number in JSON", SEEN, LINE, (f"""{COMMAND} '{{"pin": 123456789012}}'""", "123456789012")),
    Attack("a value by name, of 8 characters, without a telling name", SEEN, LINE,
           (f"env DATABASE=${{ORGTHINK_TEST}} {COMMAND}", "zebra-12")),
)  # fmt: skip
def test_what_a_server_makes_of_its_command(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    command, seen = attack.given
    monkeypatch.setenv("ORGTHINK_TEST", "zebra-12")
    secrets.words(command)
    assert redaction.redact(f"it is {seen} .") == "it is … ."


@each(
    Attack("a folder is given by name, as ${HOME}", "What is a place on this machine is no secret",
           "the text stays", "ORGTHINK_TEST"),
)  # fmt: skip
def test_a_folder_by_name(attack: Attack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(attack.given, str(tmp_path))
    secrets.words(f"server ${{{attack.given}}}/x")
    assert redaction.redact(str(tmp_path)) == str(tmp_path)


@each(
    Attack(
        "a description that looks like a URL with a query",
        "Only URLs and commands are searched for secrets: other texts of a run are stored as they are",
        "the text",
        "see https://me:pw@example.com/?q=1 first",
    )
)
def test_text_is_not_a_url(attack: Attack) -> None:
    assert secrets.by_name({"pool": {"a": attack.given}}) == {"pool": {"a": attack.given}}


@each(
    Attack(
        "a run that is resumed from another shell",
        "What is no secret by its name or length is stored as it is",
        "it goes on",
        (
            "env DEBUG=1 PATH=/opt/x/bin PWD=/home/me/a/long/folder COMPASS=north ENCODE=utf-8 COUNTRY_CODE=de server",
            "env MODEL=Qwen/Qwen2.5-7B-Instruct ACCEPT=application/json CONFIG=./configurations-of-mine/a.toml server",
            "env HOME_PAGE=https://a-rather-long-name.example.com/x URL=postgresql://application@host/db server",
            "server --auth-type anonymous --tokenizer Qwen/Qwen2.5-7B --author somebodyelse -v /a/key:/some/long/path",
            'server \'{"args": ["-y", "@modelcontextprotocol/server-filesystem"], "token-limit": 123456789}\'',
            "server --max-tokens 500 --key-file /a/key --path-prefix x -p 8080:80 -k ./a/long/path -u 1000:1000",
            'npx -y -p @modelcontextprotocol/server-filesystem server \'{"name": "x", "level": "info"}\'',
            """sh -c 'curl -H "Authorization: Bearer $TOKEN" http://host | server && echo "it is" done; exit 3'""",
            "https://host/openai/v1?api-version=2024-06-01",
            "https://host/v1;v=2?pages=a;b",
        ),
    )
)
def test_what_is_no_secret(attack: Attack) -> None:
    for command in attack.given:
        assert secrets.by_name_of_command(command) == command


@each(
    Attack(
        "the key is a word of the settings of a run that overwrites another",
        "Nothing is deleted before a run is sure to begin",
        "exit code 2, and the old run",
    )
)
def test_nothing_is_deleted_first(attack: Attack, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "eval", None)
    before = {file.name: file.read_bytes() for file in folder.path.iterdir()}
    redaction.conceal("countdown-mini")
    given = {"s": OrganizationSpec("sequential")}
    with pytest.raises(UserError, match="also a word of the settings"):
        RunFolder.create(folder.path, "eval", Evaluation("countdown-mini", given, 1), overwrite=True)
    assert {file.name: file.read_bytes() for file in folder.path.iterdir()} == before


@each(
    Attack(
        "the environment has another value under a secret's name",
        "A secret is stored under a name that has no other value",
        "a name with a number",
        "PATH",
    )
)
def test_a_taken_name(attack: Attack) -> None:
    stored = secrets.by_name_of_command(f"env {attack.given}={PASSWORD} server")
    assert stored == f"env '{attack.given}=${{{attack.given}_2}}' server"
    assert secrets.words(stored)[1] == f"{attack.given}={PASSWORD}"


@each(
    Attack(
        "a run with a password is resumed without it",
        "A run goes on once its secrets are given again, and says which are missing",
        "one line that names the variable",
        f"me:{PASSWORD}",
    )
)
def test_resuming_without_the_password(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with serving(*[says("<ANSWER> 1 </ANSWER>")] * 3) as server:
        url = server.url.replace("//", f"//{attack.given}@")
        common = ["--task", "countdown", "--organizations", "sequential", "--n", "2"]
        assert main(["eval", "--url", url, *common, "--out", str(out)]) == 0
        first, _ = (out / "episodes.jsonl").read_bytes().splitlines(keepends=True)
        (out / "episodes.jsonl").write_bytes(first)
        monkeypatch.setattr(secrets, "_given", {})
        capfd.readouterr()
        assert main(["eval", "--resume", str(out)]) == 2
        complaint = capfd.readouterr().err
        assert complaint.startswith("orgthink: set ") and complaint.count("\n") == 1
        (name,) = re.findall(r"[A-Z0-9_]+_LOGIN", complaint)
        monkeypatch.setenv(name, attack.given)
        assert main(["eval", "--resume", str(out)]) == 0
        assert len((out / "episodes.jsonl").read_bytes().splitlines()) == 2
        assert main(["view", str(out)]) == 0
    for file in out.iterdir():
        assert hides(file.read_text(), PASSWORD), file
    assert hides("".join(capfd.readouterr()), PASSWORD)


@each(
    Attack(
        "a password is typed by name, as ${NAME}",
        "A secret can be given by its name alone: no process list and no history shows it",
        "the server gets the password",
        "ORGTHINK_TEST_PASSWORD",
    )
)
async def test_a_password_by_name(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(attack.given, PASSWORD)
    async with loopback(says("fine")) as server:
        url = server.url.replace("//", f"//me:${{{attack.given}}}@")
        assert secrets.by_name(url) == url
        engine = await EndpointEngine.open(url, MODEL, retry_policy=ONCE)
        messages = (Message("user", "Hi"),)
        async for _ in engine.stream(Context(messages, [engine.prompt(messages)]), Sampling(9)):
            pass
        await engine.aclose()
        got = server.exchanges[0].headers["authorization"]
    assert got == f"Basic {base64.b64encode(f'me:{PASSWORD}'.encode()).decode()}"


@each(
    Attack("a password stands beside a user by name", STORED, NAMED, f"https://${{ME}}:{PASSWORD}@host/v1"),
    Attack("a password by name stands in another text", STORED, NAMED, "https://host/v1?auth=Bearer%20${ME}"),
    Attack("a password by name stands beside a typed user", STORED, NAMED, "https://me:${ME}@host/v1"),
)
def test_half_by_name(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ME", "somebody")
    stored = secrets.by_name(attack.given)
    assert hides(stored, PASSWORD) and "somebody" not in stored
    assert secrets.expand(stored) == attack.given.replace("${ME}", "somebody")


FOREIGN_NAME = "What a server calls its model decides nothing here: it is no secret, no path and no code"
CALLED = "the name is stored as it is, and the run can be read and resumed"
FORKS = (says("<FORK-1> 1 </FORK-1> <JOIN-1>"), says("<RETURN> 1 </RETURN>"), says("<ANSWER> 1 </ANSWER>"))


def lists(name: str):
    """What a server does that has one model, of this name."""

    async def play(exchange: Exchange) -> None:
        await exchange.reply(200, {"data": [{"id": name}]})

    return play


@each(
    Attack("a server's only model is a URL whose tokens are the ids of two problems", FOREIGN_NAME, CALLED,
           "http://h/?token=6-28-44-47-71-79=281&token=18-23-55-56-64-99=652"),
    Attack("a server's only model is a URL whose password is a part of an id", FOREIGN_NAME, CALLED,
           "http://u:|asyncthink|0@h/"),
    Attack("a server's only model is a URL whose password is an origin", FOREIGN_NAME, CALLED, "http://u:injected@h/"),
    Attack("a server's only model is called as a file here", FOREIGN_NAME, CALLED, "pyproject.toml"),
    Attack("a server's only model is called as code here", FOREIGN_NAME, CALLED, "evil.py:E"),
    Attack("a server's only model is called as a variable", FOREIGN_NAME, CALLED, "${HOME}"),
)  # fmt: skip
def test_what_a_server_calls_its_model(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("pyproject.toml", "evil.py"):
        Path(file).write_text("raise SystemExit(9)")
    with serving(*FORKS, *FORKS) as server:
        server.listing = lists(attack.given)
        command = ["eval", "--url", server.url, "--task", "countdown", "--n", "2", "--concurrency", "1"]
        assert main([*command, "--organizations", "asyncthink", "--out", "run"]) == 0, capfd.readouterr().err
        found = {episode.id: episode for episode in RunFolder.open(Path("run")).episodes()}
        assert len(found) == 2 and all(episode.id.startswith("countdown/") for episode in found.values())
        assert {trace.model for episode in found.values() for trace in episode.traces} == {attack.given}
        assert json.loads(Path("run/config.json").read_bytes())["settings"]["engine"]["model"] == attack.given
        for again in (["eval", "--resume", "run"], ["measure", "run"], ["view", "run"]):
            assert main(again) == 0, capfd.readouterr().err


STRUCTURE = "Only texts of a record are searched for secrets: its ids and the words of its format stay"


@each(
    Attack("a secret is the id of a problem", STRUCTURE, "the record is whole", "p-0123456789"),
    Attack("a secret is the id of an episode", STRUCTURE, "the record is whole", "p-0123456789|sequential|0"),
    Attack("a secret is the name of an organization", STRUCTURE, "the record is whole", "sequential"),
    Attack("a secret is an origin", STRUCTURE, "the record is whole", "injected"),
    Attack("a secret is a kind of stop", STRUCTURE, "the record is whole", "cancelled"),
    Attack("a secret is a role of a message", STRUCTURE, "the record is whole", "assistant"),
)
def test_the_structure_of_a_record(attack: Attack, tmp_path: Path) -> None:
    said = f"so {attack.given} it is"
    spans = (Span(Origin.PROMPT, "?", 1), Span(Origin.INJECTED, said, 5), Span(Origin.SAMPLED, said, 5))
    trace = Trace("0", "solver", None, spans, stop=StopReason.CANCELLED, cancel=CancelSource.SYSTEM)
    problem = Problem("p-0123456789", "countdown", said, history=(Message("assistant", said),), data={"is": [said]})
    episode = Episode(f"{problem.id}|sequential|0", problem, "sequential", 1, (trace,), stop=StopReason.CANCELLED)
    folder = RunFolder.create(tmp_path / "run", "eval", None)
    redaction.conceal(attack.given)
    with folder.journal() as journal:
        journal.append(episode)
        journal.log(episode=episode.id, said=said)
    (found,) = folder.episodes()
    assert (found.id, found.problem.id, found.organization) == (episode.id, problem.id, "sequential")
    assert [(span.origin, span.text) for span in found.root.spans[1:]] == [(s.origin, "so … it is") for s in spans[1:]]
    assert found.problem.history == (Message("assistant", "so … it is"),) and found.problem.data == {
        "is": ["so … it is"]
    }
    assert next(folder.metrics()) == {"episode": episode.id, "said": "so … it is"}


@each(
    Attack(
        "a question ends in a word behind its question mark",
        "Only URLs on a command line are searched for secrets",
        "the word stays",
        "Which is faster?sequential",
    ),
    Attack(
        "a question holds a URL and, later, a question mark",
        "Only URLs on a command line are searched for secrets",
        "the word stays",
        "Of http://h/x and y, which is faster?sequential",
    ),
)
def test_a_question_is_not_a_url(attack: Attack, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", attack.given, "--organization", "no-such-organization"]) == 2
    assert redaction.redact("sequential") == "sequential"


SHOWN = "A command line with a password is not repeated by what goes wrong with it"


@each(
    Attack("a URL with a password and no such scheme", SHOWN, LINE, ["--url", f"ftp://me:{PASSWORD}@host"]),
    Attack("a URL with a password and no port", SHOWN, LINE, ["--url", f"http://me:{PASSWORD}@host:port"]),
    Attack("a URL with a password and nobody there", SHOWN, LINE, ["--url", f"http://me:{PASSWORD}@127.0.0.1:9"]),
    Attack("a password in an option that is none", SHOWN, LINE, ["--urll", f"http://me:{PASSWORD}@host"]),
    Attack("a password in a role that is none", SHOWN, LINE, ["--roles", f"no=m@http://me:{PASSWORD}@host"]),
    Attack("a password in a setting that is none", SHOWN, LINE, ["--set", f"no=http://me:{PASSWORD}@host"]),
    Attack("a key in the query of a URL that is none", SHOWN, LINE, ["--url", f"http://?key={PASSWORD}"]),
)
def test_a_wrong_command_line(attack: Attack, capsys: pytest.CaptureFixture[str]) -> None:
    url = [] if attack.given[0] == "--url" else ["--url", "http://127.0.0.1:9"]
    assert main(["run", "x", "--model", "m", *url, *attack.given]) == 2
    out, err = capsys.readouterr()
    assert err.count("\n") == 1 and hides(out + err, PASSWORD)


@each(
    Attack(
        "a redirect to a URL with a login",
        "The target of a redirect is shown without login and query, whosoever they are",
        "the URL to name",
        "https://you:pw@new.example.com/v1?token=t#f",
    )
)
def test_a_redirect_with_a_login(attack: Attack) -> None:
    server = HttpClient(server_url("http://host"), failure=ToolError)
    said = server.answered(HttpResponse(301, b"", None, attack.given))
    assert said.endswith("points to, https://new.example.com/v1")


TOLD = "What an MCP server does with its token is not repeated"


@each(
    Attack("an MCP server fails and prints its token", TOLD, LINE, "sh -c 'echo bad $TOKEN >&2; exit 3'"),
    Attack("an MCP server prints its environment on stdout", TOLD, LINE, "sh -c 'env; exit 3'"),
    Attack("an MCP command is none", TOLD, LINE, "/no/such/command"),
    Attack("an MCP command ends within a quotation", TOLD, LINE, "sh -c 'env"),
)
async def test_an_mcp_server_fails(attack: Attack) -> None:
    pytest.importorskip("mcp")
    from orgthink.tools.mcp import mcp_tools

    with pytest.raises(UserError, match="no MCP server") as caught:
        await mcp_tools(f"env TOKEN={PASSWORD} {attack.given}")
    assert hides(str(caught.value), PASSWORD)


BETRAYS = "import os, sys; print(*map(os.environ.get, ('MYSQL_PWD', 'TOKEN', 'A')), sys.argv, file=sys.stderr)"


@each(
    Attack("an MCP server prints MYSQL_PWD", TOLD, LINE, f"env MYSQL_PWD={PASSWORD} SERVER"),
    Attack("an MCP server prints a token of its shell", TOLD, LINE, f"sh -c 'A=x TOKEN={PASSWORD} exec SERVER'"),
    Attack("an MCP server of a shell prints its password", TOLD, LINE, f"sh -c 'export MYSQL_PWD={PASSWORD}; SERVER'"),
    Attack("an MCP server prints its option --pass", TOLD, LINE, f"SERVER --pass {PASSWORD}"),
    Attack("an MCP server prints its option -u", TOLD, LINE, f"SERVER -u root:{PASSWORD}"),
    Attack("an MCP server prints the URL of its database", TOLD, LINE, f"SERVER postgresql://root:{PASSWORD}@h/db"),
)
async def test_an_mcp_server_prints_what_it_was_given(attack: Attack, tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    from orgthink.tools.mcp import mcp_tools

    server = tmp_path / "betrays.py"
    server.write_text(BETRAYS)
    with pytest.raises(UserError, match="it said last: ") as caught:
        await mcp_tools(attack.given.replace("SERVER", f"{sys.executable} {server}"))
    assert "…" in str(caught.value) and hides(str(caught.value), PASSWORD)


@each(
    Attack(
        "an MCP server looks for the key of the models",
        "Programs that orgthink starts do not inherit its keys",
        "nothing there",
        "sh -c 'echo found $OPENAI_API_KEY. >&2; exit 3'",
    )
)
async def test_an_mcp_server_looks_for_the_key(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mcp")
    from orgthink.tools.mcp import mcp_tools

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(UserError, match=r"it said last: found \."):
        await mcp_tools(attack.given)


@each(
    Attack(
        "an MCP tool returns its server's token",
        "What a tool returns goes to the model without secrets",
        "… in its place",
        f"bearer {PASSWORD}",
    )
)
async def test_an_mcp_tool_returns_a_token(attack: Attack) -> None:
    pytest.importorskip("mcp")
    from orgthink.tools.mcp import McpTool, mcp_tools

    server = Path(__file__).parents[1] / "tools" / "mcp_server.py"
    tools = {tool.name: tool for tool in await mcp_tools(f"env TOKEN={PASSWORD} {sys.executable} {server}")}
    echo = tools["echo"]
    assert isinstance(echo, McpTool)
    assert (await echo.call({"text": attack.given})).text == "bearer …\nover"


FOREIGN = "What a model's folder says reads nothing of the environment"


@each(
    Attack(
        "a model's preset sends a secret of the environment to its corpus",
        FOREIGN,
        "exit code 2",
        {"organizations": {"paramanager": {"suite": {"corpus": "http://127.0.0.1:9/?q=${OPENAI_API_KEY}"}}}},
    ),
    Attack(
        "a model's preset sends a secret of the environment to its sandbox",
        FOREIGN,
        "exit code 2",
        {"organizations": {"paramanager": {"suite": {"sandbox": "http://${OPENAI_API_KEY}.example.com"}}}},
    ),
    Attack(
        "a model's preset has a name of the environment for a key",
        FOREIGN,
        "exit code 2",
        {"organizations": {"paramanager": {"pool": {"${HOME}": ""}}}},
    ),
)
def test_a_models_preset(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (tmp_path / "orgthink.json").write_text(json.dumps(attack.given))
    assert main(["run", "x", "--model", str(tmp_path), "--organization", "paramanager"]) == 2
    err = capsys.readouterr().err
    assert "may not read your secrets" in err and hides(err)


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


def arguments(where: str, url: str) -> list[str]:
    match where:
        case "role":
            return ["--url", url, "--organizations", "parallel", "--roles", f"thinker={MODEL}@{url}"]
        case "model":
            return ["--url", url, "--organizations", "a=sequential", "--models", f"a={MODEL}@{url}"]
        case "corpus":
            return ["--url", url, "--organizations", "sequential", "paramanager", "--set", f"suite.corpus={url}"]
        case "sandbox":
            return ["--url", url, "--organizations", "sequential", "paramanager", "--set", f"suite.sandbox={url}"]
    return ["--organizations", "sequential"]


@each(
    Attack("OPENAI_BASE_URL holds a password", STORED, NAMED, "environment"),
    Attack("the URL of a role holds a password", STORED, NAMED, "role"),
    Attack("the URL of an organization's model holds a password", STORED, NAMED, "model"),
    Attack("the URL of a corpus holds a password", STORED, NAMED, "corpus"),
    Attack("the URL of a sandbox holds a password", STORED, NAMED, "sandbox"),
)
def test_where_a_password_stands(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with serving(*[says("<ANSWER> 1 </ANSWER>")] * 30) as server:
        url = server.url.replace("//", f"//me:{PASSWORD}@")
        if attack.given == "environment":
            monkeypatch.setenv("OPENAI_BASE_URL", url)
        command = ["eval", "--task", "countdown", "--n", "1", "--model", MODEL, "--out", str(out)]
        assert main([*command, *arguments(attack.given, url)]) in (0, 2), capfd.readouterr().err
    if not (out / "config.json").exists():
        pytest.fail(capfd.readouterr().err)
    for file in out.iterdir():
        assert hides(file.read_text(), PASSWORD), file
    assert "_LOGIN}" in (out / "config.json").read_text()
    assert hides("".join(capfd.readouterr()), PASSWORD)


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
    main(["view", str(out), "--perfetto", str(out / "trace.json")])
    for file in out.iterdir():
        assert hides(file.read_bytes().decode(errors="replace")), file


CUT = "A secret is found before text is cut, so that no half of it is left"


@each(
    Attack("a crash's message is cut within the key", CUT, LINE, LONGEST_TRACEBACK),
    Attack("a crash's message is cut within the key, a little later", CUT, LINE, LONGEST_TRACEBACK - 10),
)
def test_a_long_crash(attack: Attack, tmp_path: Path) -> None:
    redaction.conceal(KEY)
    folder = RunFolder.create(tmp_path / "run", "eval", Evaluation("absent", {"s": OrganizationSpec("sequential")}, 1))
    message = KEY + "x" * (attack.given - len(KEY) // 2)
    with folder.journal() as journal:
        try:
            raise RuntimeError(message)
        except RuntimeError as error:
            line = journal.crash("e", error)
    assert hides(line) and hides((folder.path / "crashes.log").read_text())


PAIRS = "Pairs for training hold no key, in both of their formats"


@each(
    Attack("a teacher's pair repeats the key, as JSON lines", PAIRS, "… in its place", "pairs.jsonl"),
    Attack("a teacher's pair repeats the key, as parquet", PAIRS, "… in its place", "pairs.parquet"),
)
def test_pairs(attack: Attack, tmp_path: Path) -> None:
    if attack.given.endswith("parquet"):
        pytest.importorskip("pyarrow")
    redaction.conceal(KEY)
    spans = [
        Span(Origin.PROMPT, "What?", 1),
        Span(Origin.SAMPLED, f"{KEY} is", 1),
        Span(Origin.INJECTED, f" {KEY} now", 1),
        Span(Origin.SAMPLED, f" and {KEY}", 1),
    ]
    episode = Episode("e", Problem("p", "t", "What?"), "o", 2, (Trace("organizer", "organizer", None, tuple(spans)),))
    write_pairs(tmp_path / attack.given, pairs_of(episode, "m"))
    first, second = read_pairs(tmp_path / attack.given)
    assert (first.prompt, first.response) == ("What?", "… is")
    assert (second.prompt, second.begun, second.response) == ("What?", "… is … now", " and …")


CRASHES = "A traceback and a log line hold no secret"


@each(
    Attack("a plug-in fails with the key in its message", CRASHES, LINE, "raise RuntimeError(key)"),
    Attack("a plug-in logs the key", CRASHES, LINE, "logging.getLogger('x').error('%s', key); raise KeyError"),
    Attack("a plug-in fails with the key as a name", CRASHES, LINE, "{}[key]"),
)
def test_a_crash(attack: Attack, tmp_path: Path) -> None:
    file = tmp_path / "plugin.py"
    file.write_text(
        "import dataclasses, logging, os\n@dataclasses.dataclass\nclass Go:\n    def __call__(self):\n"
        f"        key = os.environ['OPENAI_API_KEY']\n        {attack.given}\n"
    )
    code = "import sys; from orgthink.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, f"{file}:Go"]
    root = Path(orgthink.__file__).parent.parent
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=root, timeout=60, env=os.environ | {"OPENAI_API_KEY": KEY}
    )
    assert done.returncode == 1 and "Traceback" in done.stderr and "…" in done.stderr and hides(done.stderr)


@each(
    Attack(
        "a server's only model is called by the key",
        "A record names no model by the key",
        "one line, exit code 2: such a run could not be resumed",
        f"models/{KEY}",
    )
)
def test_a_model_called_by_the_key(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def choose(engine: EndpointEngine, model: str | None) -> str:
        return model or attack.given

    monkeypatch.setattr(EndpointEngine, "_choose", choose)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    out = tmp_path / "run"
    with serving(says("<ANSWER> 1 </ANSWER>")) as server:
        command = ["eval", "--url", server.url, "--task", "countdown", "--n", "1", "--organizations", "sequential"]
        assert main([*command, "--out", str(out)]) == 2
    assert hides("".join(capfd.readouterr())) and not (out / "config.json").exists()


@each(
    Attack(
        "an agent's lane shows the key one character at a time",
        "Once a model has said the whole key, no lane shows it",
        "… in its place",
        KEY,
    )
)
def test_a_lane_with_the_key(attack: Attack) -> None:
    redaction.conceal(attack.given)
    picture, screen = Picture(120), io.StringIO()
    for character in f"it is {attack.given} !":
        picture.watch("text", SimpleNamespace(id="worker", steps=1), character)  # type: ignore[arg-type]
    Console(file=screen, width=300, color_system=None).print(picture)
    assert "it is … !" in screen.getvalue() and hides(screen.getvalue())


@each(
    Attack(
        "a model calls a tool with an argument that is named by the key",
        "A name in JSON holds no key, unless it is a word of small letters",
        "… in its place",
        {"arguments": {KEY: 1, "x": [{KEY: KEY}]}, "settings": 1},
    ),
    Attack(
        "a table of models has one that is called by the key",
        "A name in JSON holds no key, unless it is a word of small letters",
        "… in its place",
        {"model_shares": {f"models/{KEY}": 0.5}, "settings": 1},
    ),
)
def test_a_name_with_the_key(attack: Attack) -> None:
    redaction.conceal(KEY, "settings")
    written = redaction.redact_json(json.dumps(attack.given))
    assert hides(written) and "settings" in json.loads(written)
