"""What a command says when nothing came out: no answer, no server, no such name."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from test_cli import SMALL, complaint, toy  # noqa: F401  # a fixture

from orgthink.cli import _verb, main
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.record.folder import RunFolder
from orgthink.util import http
from orgthink.util.registry import COMMANDS


@pytest.mark.parametrize(
    ("word", "meant"), [("vote", "eval --organizations majority-vote"), ("solve", "run"), ("evaluate", "eval")]
)
def test_a_word_that_is_no_command_leads_to_one(word: str, meant: str, capsys: pytest.CaptureFixture[str]):
    assert main([word]) == 2
    line = complaint(capsys)
    assert line.startswith(f"orgthink: unknown command '{word}': did you mean") and f"{meant}?" in line
    assert isinstance(_verb(meant.split()), COMMANDS[meant.split()[0]])


def test_names_with_underscores_are_those_with_hyphens(toy):  # noqa: F811
    made = _verb(
        [
            "eval",
            "--task",
            "countdown_small",
            "--organizations",
            "verifier_corrector",
            "self_refine",
            "--set",
            "passes=4",
        ]
    )
    plan = made.plan()
    assert list(plan.organizations) == ["verifier-corrector", "self-refine"]
    assert plan.organizations["verifier-corrector"].settings["passes"]
    assert plan.made()
    assert type(OrganizationSpec("verifier_corrector").named("old")) is type(
        OrganizationSpec("verifier-corrector").named("a")
    )


def test_a_run_without_an_answer_says_why_and_fails(toy, capsys: pytest.CaptureFixture[str]):  # noqa: F811
    toy(lambda text: " <FORK-1> a </FORK-1> <FORK-2> b </FORK-2>" if text.startswith("organizer") else "nothing")
    assert main(["run", "--task", "countdown-small", "--set", "tolerant=false"]) == 1
    hint = capsys.readouterr().err.splitlines()[-1]
    assert "no answer: the format error POOL_OVERFLOW ended it: try --set tolerant=true, --set overflow=queue" in hint
    toy(lambda text: "word " * 99)
    assert main(["run", "--task", "countdown-small", "--max-tokens", "5", "--organization", "sequential"]) == 1
    assert "no answer: a limit cut it off: raise --max-tokens" in capsys.readouterr().err
    assert main([*SMALL, "--organizations", "sequential", "--out", "run"]) == 1
    assert "no answer: a limit cut it off: raise --max-tokens" in capsys.readouterr().err
    toy(lambda text: "no answer here")
    assert main([*SMALL, "--organizations", "asyncthink", "--set", "tolerant=false", "--out", "other"]) == 1
    assert "the model wrote none where it is read" in capsys.readouterr().err


@pytest.mark.parametrize("organization", ["sequential", "parallel", "majority-vote", "asyncthink"])
def test_a_model_that_knows_no_tags_answers_by_its_text(organization: str, toy, capsys: pytest.CaptureFixture[str]):  # noqa: F811
    toy(lambda text: "It is 42.")
    how = ["--organization", organization, *(["--set", "tolerant=true"] if organization == "asyncthink" else [])]
    assert main(["run", "What is 17 + 25?", *how]) == 0
    out = capsys.readouterr().out
    assert "answer:\nIt is 42.\n" in out and "(each agent counts its own decoding steps)" in out


def test_the_last_line_says_where_the_run_is(toy, capsys: pytest.CaptureFixture[str]):  # noqa: F811
    assert main([*SMALL, "--organizations", "sequential"]) == 0
    (path,) = Path("runs").iterdir()
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"orgthink: stored in {path}; look at it: orgthink view {path}"
    assert main(["eval", "--resume", str(path)]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == last


class Stub(ThreadingHTTPServer):
    """A server of a model that answers a number of chats and then is gone."""

    daemon_threads = True

    def __init__(self, chats: int, port: int = 0, status: int = 0) -> None:
        self.left, self.status, self.lock = chats, status, threading.Lock()
        super().__init__(("127.0.0.1", port), _Chat)

    def spend(self) -> bool:
        with self.lock:
            self.left -= 1
        return self.left >= 0


class _Chat(BaseHTTPRequestHandler):
    server: Stub

    def do_GET(self) -> None:
        self._send(200, "application/json", json.dumps({"data": [{"id": "stub"}]}))

    def do_POST(self) -> None:
        streamed = json.loads(self.rfile.read(int(self.headers["content-length"]))).get("stream")
        if streamed and not self.server.spend():
            if self.server.status:
                return self._send(self.server.status, "text/html", "<h1>Bad gateway</h1>")
            self.server.shutdown()
            self.server.server_close()
            return None
        said = {"role": "assistant", "content": "<ANSWER> 1 </ANSWER>"}
        choice = {"index": 0, "finish_reason": "stop", "delta" if streamed else "message": said}
        text = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})
        kind = "text/event-stream" if streamed else "application/json"
        return self._send(200, kind, f"data: {text}\n\ndata: [DONE]\n\n" if streamed else text)

    def _send(self, status: int, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def stub(chats: int, **how: int) -> Iterator[Stub]:
    server = Stub(chats, **how)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(("status", "says"), [(0, "no server at http://127.0.0.1"), (502, "answered 502: Bad gateway")])
def test_a_server_that_is_gone_stops_the_run(
    status: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """One by one, each of the others would fail as well."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(http, "RetryPolicy", partial(http.RetryPolicy, attempts=2, first_delay=0.01))
    with stub(6, status=status) as server:
        port = server.server_port
        asked = ["eval", "--task", "countdown", "--n", "60", "--organizations", "sequential", "--concurrency", "4"]
        assert main([*asked, "--url", f"http://127.0.0.1:{port}/v1", "--out", "run"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert says in last and "5 requests in a row failed" in last
    assert last.endswith("go on with: orgthink eval --resume run")
    ended = list(RunFolder.open(Path("run")).episodes())
    assert 6 <= len(ended) < 30 and sum(episode.answer is not None for episode in ended) == 6
    with stub(99, port=port):
        assert main(["eval", "--resume", "run"]) == 0
    assert all(episode.answer == "1" for episode in RunFolder.open(Path("run")).episodes())
    assert len(list(RunFolder.open(Path("run")).episodes())) == 60


def test_prompts_that_a_server_refuses_do_not_stop_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    with stub(2, status=422) as server:
        asked = ["eval", "--task", "countdown", "--n", "12", "--organizations", "sequential", "--concurrency", "1"]
        assert main([*asked, "--url", f"http://127.0.0.1:{server.server_port}/v1", "--out", "run"]) == 1
    assert len(list(RunFolder.open(Path("run")).episodes())) == 12


@pytest.mark.parametrize("setting", ["tolerant=false", "asyncthink.tolerant=false"])
def test_serve_sets_one_of_several_organizations(setting: str):
    argv = ["serve", "--organizations", "sequential", "asyncthink", "--model", "m", "--url", "http://127.0.0.1:9"]
    made = _verb([*argv, "--set", setting])
    plan = made.plan_of("asked", made.organizations, n=1)
    assert not plan.made()["asyncthink"].tolerant and "tolerant" not in plan.organizations["sequential"].settings
