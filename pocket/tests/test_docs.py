"""Every Python block of the documentation runs and prints what its comments say."""

import re
from pathlib import Path

import pytest

DOCS = sorted((Path(__file__).parent.parent.parent / "docs").glob("*.md"))
FENCED = re.compile(r"```python\n(.*?)```", re.DOTALL)
BLOCKS = [(file.name, code) for file in DOCS for code in FENCED.findall(file.read_text())]


@pytest.mark.parametrize(("name", "code"), BLOCKS, ids=[name for name, _ in BLOCKS])
def test_block(name, code, capsys):
    exec(compile(code, name, "exec"), {"__name__": "__main__"})  # our own text, not a model's
    said = [line for line in capsys.readouterr().out.splitlines() if line]
    assert said == re.findall(r"# → (.*)", code)
