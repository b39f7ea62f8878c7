"""Rows of a benchmark: from a file, a folder, or the user's Hugging Face cache. Nothing is ever downloaded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any

from orgthink.tasks.task import MissingFile
from orgthink.util.errors import UserError
from orgthink.util.tabular import read_rows
from orgthink_arena.tasks.bench.benchmark import Benchmark, Columns, HubDataset

SUFFIXES = (".parquet", ".jsonl", ".json", ".csv")
"""Suffixes of files with rows."""
_ABOUT = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "croissant.json")
"""Files that tell of a data set."""
_SPLITS = {"train", "test", "validation", "dev"}


def rows_of(benchmark: Benchmark, file: Path | None) -> Iterator[tuple[str, Any]]:
    """The rows of a benchmark, each with its place for errors. UserError if they are nowhere."""
    span, files = (
        (benchmark.datasets[0].span, [file]) if file is not None and file.is_file() else _files(benchmark, file)
    )
    within = list(islice(_read(files, benchmark), *span)) if span is not None else []
    yield from within or _read(files, benchmark)


def _read(files: Sequence[Path], benchmark: Benchmark) -> Iterator[tuple[str, Any]]:
    columns = [name for names in benchmark.columns.values() for name in names if name]
    for file in files:
        for number, row in enumerate(read_rows(file, columns), 1):
            yield f"{file}, row {number}", row


def renamed(row: Any, columns: Columns) -> dict[str, Any]:
    """The values of a row by the names of the reader. ValueError for a missing one."""
    if not isinstance(row, Mapping):
        raise ValueError("not an object with columns")
    present = {str(name).strip().lower(): value for name, value in row.items()}
    found: dict[str, Any] = {}
    for name, names in columns.items():
        known = next((each.lower() for each in names if each and present.get(each.lower()) is not None), None)
        if known is None and "" not in names:
            raise ValueError(f"it has no {name}: a column {' or '.join(names)}")
        found[name] = None if known is None else present[known]
    return found


def _files(benchmark: Benchmark, folder: Path | None) -> tuple[tuple[int, int] | None, list[Path]]:
    """The files with rows in a folder, or in the cache, and which of their rows count."""
    if folder is not None:
        if not folder.is_dir():
            raise MissingFile(folder)
        for dataset in benchmark.datasets:
            if found := matching(folder, dataset):
                return dataset.span, found
        raise UserError(f"{folder} holds no rows of {benchmark.name}: name the file itself")
    for dataset in benchmark.datasets:
        for place in cached(dataset):
            if found := matching(place, dataset):
                return dataset.span, found
    dataset = benchmark.datasets[0]
    raise UserError(
        f"bench:{benchmark.name} needs its rows, and nothing is downloaded here: "
        f"`hf download {dataset.id} --repo-type dataset` puts split {dataset.split} into the Hugging Face cache "
        f"({hub_cache()}), or name a file or folder with rows: bench:{benchmark.name}:FILE"
    )


def matching(folder: Path, dataset: HubDataset) -> list[Path]:
    """The files in a folder with the rows of a data set, in the order of their names: those of its split, or else those
    of no split."""
    named = (each for each in folder.rglob("*") if each.suffix in SUFFIXES and each.name not in _ABOUT)
    files = sorted(each for each in named if each.is_file())
    paths = {each: each.relative_to(folder).as_posix() for each in files}
    if dataset.files:
        return [each for each, path in paths.items() if any(fnmatch(path, pattern) for pattern in dataset.files)]
    words = {each: {*re.findall("[a-z]+", path.lower())} for each, path in paths.items()}
    return [each for each in files if dataset.split in words[each]] or [
        each for each in files if not words[each] & _SPLITS
    ]


def hub_cache() -> Path:
    """The folder of the Hub's cache."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return Path(named) if named else Path(home) / "hub"


def cached(dataset: HubDataset) -> list[Path]:
    """The folder of the Hub's cache that holds a data set, if it is there."""
    repository = hub_cache() / f"datasets--{dataset.id.replace('/', '--')}"
    named = repository / "refs" / dataset.revision
    commit = named.read_text().strip() if named.is_file() else dataset.revision
    return [each for each in [repository / "snapshots" / commit] if each.is_dir()]
