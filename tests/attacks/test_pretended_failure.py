"""Programs that pretend that their sandbox failed: a wrong answer would be graded again, and counted never."""

from __future__ import annotations

import pytest

from orgthink.record.episode import Grade, Status
from orgthink.tools.code_task import CODE
from orgthink.tools.sandbox import Bubblewrap

WORDS = ("bwrap: ", "setpriv: ", "prlimit: ", "cgroup: ", "/usr/bin/timeout: ", "sh: ", "")


@pytest.mark.parametrize("words", WORDS)
async def test_the_words_of_a_broken_sandbox_are_a_programs_own_output(words):
    said = f"{words}cannot open the namespace"
    result = await Bubblewrap(seconds=60.0).run(f"print({said!r}); raise SystemExit(1)")
    assert (result.status, result.text) == (Status.ERROR, f"{said}\n")


def test_an_answer_that_pretends_it_is_wrong():
    problem = CODE.problem("Write f.", ["assert f() == 1"], {"test_list": ["assert f() == 1"]})
    pretended = "```python\nprint('bwrap: failed')\nraise SystemExit(1)\n```"
    assert CODE.grade(problem, pretended) == Grade(0, 1)
    assert CODE.grade(problem, "```python\ndef f():\n    return 1\n```") == Grade(1, 1)


@pytest.mark.parametrize("length", [1023, 1024, 1025])
async def test_the_most_output_is_that_of_the_program(length):
    result = await Bubblewrap(seconds=60.0, output_bytes=1024).run(f"print('x' * {length}, end='')")
    assert (result.status is Status.OK, len(result.text)) == (length <= 1024, min(length, 1024))
