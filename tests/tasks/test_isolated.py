"""A process that answers questions gives each question its own answer, whatever interrupts one."""

from __future__ import annotations

from typing import TextIO

import pytest

from orgthink.tasks import isolated, math_verifier

RIGHT, WRONG = ["x+1", "1+x"], ["x+1", "x+2"]


class Interrupted:
    """The output of a process: at the first line comes a Ctrl-C."""

    def __init__(self, real: TextIO, error: BaseException) -> None:
        self.real, self.error = real, error

    def readline(self) -> str:
        raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), ValueError("half a line")], ids=repr)
def test_the_question_after_an_interrupted_one_gets_its_own_answer(error: BaseException) -> None:
    process = isolated.IsolatedProcess(math_verifier.__name__)
    assert process.ask(RIGHT) is True
    first = process.process
    assert first is not None and first.stdout is not None
    first.stdout = Interrupted(first.stdout, error)  # type: ignore[assignment]
    with pytest.raises(type(error)):
        process.ask(WRONG)
    assert first.poll() is not None, "the process has ended"
    assert [process.ask(question) for question in (RIGHT, WRONG, RIGHT)] == [True, False, True]


def test_an_answer_to_another_question_is_an_error_and_ends_the_process() -> None:
    process = isolated.IsolatedProcess(math_verifier.__name__)
    assert process.ask(RIGHT) is True
    first = process.process
    assert first is not None and first.stdin is not None
    first.stdin.write('[0, ["x", "y"]]\n')  # somebody else's question, whose answer nobody reads
    first.stdin.flush()
    with pytest.raises(RuntimeError, match="another question"):
        process.ask(RIGHT)
    assert first.poll() is not None
    assert process.ask(WRONG) is False
