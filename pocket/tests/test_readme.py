"""The README's code block runs, and what it says about commands is true."""

import json
import re
import shlex
from pathlib import Path

import pytest

from orgthink.cli import main

ROOT = Path(__file__).parent.parent.parent
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


DRY_RUNS = re.findall(r"^orgthink (.*--dry-run)", README + (ROOT / "docs" / "training.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("line", DRY_RUNS)
def test_a_dry_run_works_as_it_is_pasted(line, tmp_path, monkeypatch, capsys):
    """Where there is neither a model nor a file of problems, it says what has to be named."""
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)) == 0
    out, err = capsys.readouterr()
    assert all(name in err for name in json.loads(out)["unnamed"])
    assert ("rows.jsonl" in err or "dapo.jsonl" in err) == ("math:" in line)


def test_readme_shows_dry_runs():
    assert len(DRY_RUNS) >= 4
