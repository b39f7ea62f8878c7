"""The answer to Ctrl-C reaches its reader, whatever the signal interrupts."""

import builtins
import os
import sys

import pytest

from orgthink.training.interrupt import answer


def reentrant(*_: object, **__: object) -> None:
    raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")


def test_an_answer_in_the_middle_of_a_print_is_not_lost(capfd, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    monkeypatch.setattr(builtins, "print", reentrant)
    answer("finishing")
    assert capfd.readouterr().err == "finishing\n"


def test_what_stands_in_for_standard_error_gets_the_answer(capsys):
    answer("finishing")
    assert capsys.readouterr().err == "finishing\n"


def test_a_closed_pipe_is_no_error(monkeypatch: pytest.MonkeyPatch):
    def closed(*_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    monkeypatch.setattr(os, "write", closed)
    answer("finishing")
