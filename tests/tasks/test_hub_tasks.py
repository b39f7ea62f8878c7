"""Data sets of the hub, in the layout of its cache and in the columns of five public names. No test has a network."""

from __future__ import annotations

import io
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import huggingface_hub
import pyarrow
import pytest
from huggingface_hub import constants
from pyarrow import parquet

from orgthink.cli import main
from orgthink.tasks import task_named
from orgthink.tools import code_task
from orgthink.util.errors import UserError
from orgthink.util.registry import Untrusted, registered_only

REVISION = "0123456789abcdef0123456789abcdef01234567"
GSM8K = [
    {"question": f"Ann has {n} pens and buys {n}. How many?", "answer": f"Two times.\n#### {2 * n}"} for n in (1, 36)
]
MATH_500 = [
    {
        "problem": "Convert $(0,3)$ to polar coordinates.",
        "solution": "It is $\\boxed{\\left( 3, \\frac{\\pi}{2} \\right)}$.",
        "answer": "\\left( 3, \\frac{\\pi}{2} \\right)",
        "subject": "Precalculus",
        "level": 2,
        "unique_id": "test/precalculus/1.json",
    }
]
AIME = [{"id": 0, "problem": "How many?", "solution": "Long. \\boxed{116}", "answer": "116", "url": "https://x"}]
MMLU = [{"question": "Largest?", "subject": "anatomy", "choices": ["skin", "ear", "eye", "lip"], "answer": 0}]
HUMANEVAL = [
    {
        "task_id": "HumanEval/901",
        "prompt": 'def one() -> int:\n    """One."""\n',
        "canonical_solution": "    return 1\n",
        "test": "def check(candidate):\n    assert candidate() == 1\n",
        "entry_point": "one",
    }
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, and no network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def cached(name: str, files: dict[str, list[dict[str, Any]]], at: Path | None = None) -> Path:
    """Tables of a data set in the cache, as huggingface_hub lays them out: links to blobs."""
    place = (at or Path("hub").resolve()) / f"datasets--{name.replace('/', '--')}"
    snapshot = place / "snapshots" / REVISION
    for folder in (snapshot, place / "blobs", place / "refs"):
        folder.mkdir(parents=True, exist_ok=True)
    (place / "refs/main").write_text(REVISION)
    (snapshot / "README.md").write_text("# A data set")
    for file, rows in files.items():
        content = io.BytesIO()
        if file.endswith(".parquet"):
            parquet.write_table(pyarrow.Table.from_pylist(rows), content)
        else:
            content.write("".join(json.dumps(row) + "\n" for row in rows).encode())
        blob = place / "blobs" / sha256(content.getvalue()).hexdigest()
        blob.write_bytes(content.getvalue())
        (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / file).symlink_to(blob)
    return snapshot


PUBLIC = {
    "openai/gsm8k": (
        {
            "main/test-00000-of-00001.parquet": GSM8K[:1],
            "main/train-00000-of-00001.parquet": GSM8K[1:],
            "socratic/test-00000-of-00001.parquet": GSM8K,
            "socratic/train-00000-of-00001.parquet": GSM8K,
        },
        '1 problems from column "question", answers from "answer", grader math',
        "so \\boxed{2}",
    ),
    "HuggingFaceH4/MATH-500": (
        {"test.jsonl": MATH_500},
        '1 problems from column "problem", answers from "answer", grader math',
        "\\boxed{(3, \\pi/2)}",
    ),
    "AI-MO/aimo-validation-aime": (
        {"data/train-00000-of-00001.parquet": AIME},
        '1 problems from column "problem", answers from "answer", grader math',
        "\\boxed{116}",
    ),
    "cais/mmlu": (
        {
            "all/test-00000-of-00001.parquet": MMLU,
            "all/dev-00000-of-00001.parquet": MMLU,
            "anatomy/test-00000-of-00001.parquet": MMLU,
        },
        '1 problems from column "question", answers from "answer", grader choice',
        "The answer is (A).",
    ),
    "openai/openai_humaneval": (
        {"openai_humaneval/test-00000-of-00001.parquet": HUMANEVAL},
        '1 problems from column "prompt", answers from "test", grader code',
        "```python\ndef one():\n    return 1\n```",
    ),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_data_set_is_a_task(name, monkeypatch):
    from test_tables import Local

    monkeypatch.setattr(code_task, "runner", lambda: Local())
    files, taken, right = PUBLIC[name]
    cached(name, files)
    task = task_named(f"hf:{name}")
    assert task.taken("test") == taken
    problem = next(task.problems("test", 0))
    assert task.grade(problem, right).all_correct
    assert not task.grade(problem, "\\boxed{B}, 3 or 4").all_correct


def test_splits_are_different_files():
    cached("openai/gsm8k", PUBLIC["openai/gsm8k"][0])
    task = task_named("hf:openai/gsm8k")
    answers = {split: next(task.problems(split, 0)).data["answer"] for split in ("train", "test")}
    assert answers == {"train": "72", "test": "2"}
    cached("one/split", {"data/train-00000-of-00001.parquet": GSM8K})
    task = task_named("hf:one/split")
    assert len(task.rows_of("train")) == len(task.rows_of("test")) == 2  # type: ignore[attr-defined]


def test_a_data_set_in_several_files_is_read_whole():
    shards = {f"data/test-0000{n}-of-00002.parquet": GSM8K[n : n + 1] for n in (0, 1)}
    cached("two/shards", shards)
    assert task_named("hf:two/shards").taken("test").startswith("2 problems")  # type: ignore[union-attr]


def test_a_configuration_is_named_where_there_are_several():
    files = {f"{config}/test.jsonl": GSM8K[:n] for n, config in enumerate(("algebra", "geometry"), 1)}
    cached("some/maths", files)
    with pytest.raises(
        UserError, match="hf:some/maths: name a configuration, as hf:some/maths:NAME: algebra, geometry"
    ):
        task_named("hf:some/maths")
    assert task_named("hf:some/maths:geometry").taken("test").startswith("2 problems")  # type: ignore[union-attr]
    with pytest.raises(UserError, match="NAME: algebra, geometry"):
        task_named("hf:some/maths:topology")


def test_another_grader():
    cached("openai/gsm8k", PUBLIC["openai/gsm8k"][0])
    assert task_named("hf:openai/gsm8k#exact").name == "exact"


def test_without_a_network_one_line_says_what_to_run(capsys):
    assert main(["eval", "--task", "hf:openai/gsm8k", "--url", "http://127.0.0.1:9/v1", "--model", "m"]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "hf download openai/gsm8k --repo-type dataset" in err and "Traceback" not in err


def test_what_is_not_in_the_cache_is_downloaded(tmp_path, monkeypatch):
    asked = []

    def download(name, *, repo_type, allow_patterns, local_files_only=False):
        asked.append(local_files_only)
        assert repo_type == "dataset" and "*main*.parquet" in allow_patterns
        if local_files_only:
            raise FileNotFoundError
        return str(cached(name, PUBLIC["openai/gsm8k"][0], tmp_path / "downloaded"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert task_named("hf:openai/gsm8k:main").taken("train").startswith("1 problems")  # type: ignore[union-attr]
    assert asked == [True, False]


def test_a_run_of_a_stranger_downloads_nothing(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **how: pytest.fail("it was downloaded"))
    with registered_only(), pytest.raises(Untrusted):
        task_named("hf:openai/gsm8k")
