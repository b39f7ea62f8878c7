"""The README's code block runs, and what it says about commands is true."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_code_block_runs(capsys, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})  # our own text, not a model's
    out = capsys.readouterr().out
    assert "<FORK-1>" in out and "critical path" in out


@pytest.mark.parametrize("target", ["demo", "test", "check", "bench", "pocket", "test-vllm", "test-browser"])
def test_every_make_target_exists(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f"make {target}" in README


def test_every_path_in_the_tree_exists():
    (tree,) = re.findall(r"```text\n(orgthink/.*?)```", README, re.DOTALL)
    for line in tree.splitlines():
        path = line.split("  ")[0].strip()
        if path:
            assert (ROOT / path).exists(), path
