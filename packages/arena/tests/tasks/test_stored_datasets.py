"""What the library `datasets` stores is read without it (`make test-clients`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_rows import FIXTURES, write
from orgthink_arena.tasks.bench import BENCHMARKS, BenchmarkTask

from orgthink.tasks import task_named

pytestmark = pytest.mark.clients


def texts(name: str, place: Path) -> set[str]:
    task = task_named(f"bench:{name}:{place}")
    assert isinstance(task, BenchmarkTask)
    return {problem.text for problem in task.rows}


@pytest.mark.parametrize("name", FIXTURES)
def test_a_saved_and_a_prepared_data_set(name, tmp_path):
    from datasets import Dataset, DatasetDict, load_dataset

    split = BENCHMARKS[name].datasets[0].split
    file = write(FIXTURES[name].rows, tmp_path / "rows.parquet")
    rows = Dataset.from_parquet(str(file), cache_dir=str(tmp_path / "other"))
    config = "gpqa_diamond" if "gpqa" in name else "saved"
    rows.save_to_disk(tmp_path / config)
    DatasetDict({"validation": rows.select([0]), split: rows}).save_to_disk(tmp_path / "both" / config)
    prepared = tmp_path / "prepared" / config
    load_dataset("parquet", data_files={split: str(file)}, cache_dir=str(prepared))
    wanted = texts(name, file)
    if not BENCHMARKS[name].datasets[0].files:  # else the files of a set have names of their own
        assert wanted == texts(name, tmp_path / config)
    assert wanted == texts(name, tmp_path / "both") == texts(name, tmp_path / "prepared")
