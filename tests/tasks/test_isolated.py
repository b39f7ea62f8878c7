"""A process that answers questions gives each question its own answer, whatever interrupts one."""

from __future__ import annotations

import os
import signal
import socket
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from attacks.deadline import within

from orgthink.tasks import math_verifier
from orgthink.util import isolated
from orgthink.util.errors import ToolError

RIGHT, WRONG = ["x+1", "1+x"], ["x+1", "x+2"]


class Interrupted:
    """The pipe to a process: a Ctrl-C comes instead of the first answer."""

    def __init__(self, real: Connection, error: BaseException) -> None:
        self.send_bytes, self.poll, self.error = real.send_bytes, real.poll, error

    def recv_bytes(self) -> bytes:
        raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), ValueError("half a line")], ids=repr)
def test_the_question_after_an_interrupted_one_gets_its_own_answer(error: BaseException) -> None:
    process = isolated.IsolatedProcess(math_verifier.__name__)
    assert process.ask(RIGHT) is True
    first = process.process
    assert first is not None
    process.pipe = Interrupted(process.pipe, error)
    with pytest.raises(type(error)):
        process.ask(WRONG)
    assert first.poll() is not None, "the process has ended"
    assert [process.ask(question) for question in (RIGHT, WRONG, RIGHT)] == [True, False, True]


def module(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> isolated.IsolatedProcess:
    """The process of a module that is written for a test. Its questions are answered by `answer`."""
    name = f"isolated_{folder.name.replace('-', '_')}"
    (folder / f"{name}.py").write_text(f"from orgthink.util.isolated import processor_seconds, serve\n{source}")
    monkeypatch.syspath_prepend(str(folder))
    return isolated.IsolatedProcess(name)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise ImportError('antlr4 of another version')", "ImportError: antlr4 of another version"),
        ("import a_library_that_is_not_there\nserve(str)", "No module named 'a_library_that_is_not_there'"),
        ("serve(str, lambda: 1 / 0)", "ZeroDivisionError"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("print('ready')", "exit code 0"),
        ("import sys; sys.stderr.write('x' * 1_000_000 + '\\nthe end\\n'); sys.exit(3)", "the end"),
    ],
    ids=["import", "missing", "begin", "signal", "nothing", "much"],
)
def test_a_process_that_does_not_start_says_so(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = module(tmp_path, source, monkeypatch)
    for _ in range(2):  # every question says it
        with pytest.raises(ToolError) as caught:
            process.ask("?")
        assert said in str(caught.value) and len(str(caught.value)) < 1000
    assert process.process is None


def test_what_cannot_be_started_at_all_is_a_failed_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    process = isolated.IsolatedProcess(math_verifier.__name__)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(ToolError, match="does not start"):
        process.ask(RIGHT)


def test_what_a_library_prints_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what it prints when it is imported, before the process is ready, nor later."""
    noise = "print('hello'); print('[1, true]'); import sys; print('oh', file=sys.stderr)\n"
    process = module(
        tmp_path, f"{noise}def answer(one):\n    {noise.strip()}\n    return one\nserve(answer)", monkeypatch
    )
    assert [process.ask(one) for one in ("a", "b")] == ["a", "b"]


def test_a_question_over_its_limit_of_time_has_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def answer(question):\n    with processor_seconds(0.1):\n        while question: pass\n    return 1\n"
    source += "serve(answer)"
    process = module(tmp_path, source, monkeypatch)
    assert [process.ask(question) for question in (True, False)] == [None, 1]


def test_the_longest_wait_ends_a_process_and_no_second_one_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "import time\ndef answer(one):\n    open(__file__ + '.x', 'a').write('x')\n    time.sleep(60)\nserve(answer)"
    )
    process = module(tmp_path, source, monkeypatch)
    monkeypatch.setattr(isolated, "LONGEST_WAIT", 3)
    with pytest.raises(isolated.ProcessEnded):
        process.ask("?")
    assert [file.read_text() for file in tmp_path.glob("*.x")] == ["x"]


def test_a_start_that_takes_the_longest_wait_is_no_fault_of_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = module(tmp_path, "import time; time.sleep(60)", monkeypatch)
    monkeypatch.setattr(isolated, "LONGEST_WAIT", 1)
    with pytest.raises(ToolError, match=r"does not start.*gave no answer for 1 s") as caught:
        process.ask("?")
    assert not isinstance(caught.value, isolated.ProcessEnded)


def test_a_question_that_ends_its_process_is_an_error_with_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import os\ndef answer(one):\n    return one if one else os.kill(os.getpid(), 9)\nserve(answer)"
    process = module(tmp_path, source, monkeypatch)
    with pytest.raises(isolated.ProcessEnded, match="SIGKILL"):
        process.ask("")
    assert process.ask("next") == "next"


def test_a_long_question_to_a_process_that_hangs_is_not_sent_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = module(tmp_path, "serve(str)", monkeypatch)
    monkeypatch.setattr(isolated, "LONGEST_WAIT", 3)
    process._start()
    assert process.process is not None
    os.kill(process.process.pid, signal.SIGSTOP)
    with pytest.raises(isolated.ProcessEnded, match="gave no answer for 3 s"):
        within(60, lambda: process.ask("x" * 10_000_000))
    assert process.process is None


def test_a_long_question_where_the_program_has_set_a_time_limit_for_its_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)
    try:
        assert module(tmp_path, "serve(len)", monkeypatch).ask("x" * 4_000_000) == 4_000_000
    finally:
        socket.setdefaulttimeout(before)
