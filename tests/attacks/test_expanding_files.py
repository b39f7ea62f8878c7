"""Files that are small on the disk and large in memory."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each

from orgthink.util import tabular
from orgthink.util.errors import UserError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

BOUNDED = "The rows of a parquet file are read a few at a time, up to a multiple of its size."


@each(Attack("a parquet file of 300 bytes with a text of 1 MB in each of 20,000 rows", BOUNDED, "one line", 20_000))
def test_a_parquet_file_that_expands(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular, "EXPANDED", 1 << 27)
    file = tmp_path / "rows.parquet"
    texts = pyarrow.array(["x" * 1_000_000])
    rows = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * attack.given, pyarrow.int32()), texts)
    parquet.write_table(pyarrow.table({"question": rows}), file, compression="zstd", store_schema=False)
    assert file.stat().st_size < 1000
    found = tabular.read_rows(file, ["question"])
    assert len(list(islice(found, 64))) == 64
    with pytest.raises(UserError, match="expands to more than 100 times its size") as caught:
        for _ in range(200):
            next(found)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_was_compressed_as_usual_is_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"question": [f"question {n}" for n in range(1000)]}), file)
    assert [row["question"] for row in tabular.read_rows(file, ["question"])] == [f"question {n}" for n in range(1000)]


@each(Attack("a parquet file of 2 kB with 400,000 numbers in a list of its only row", BOUNDED, "one line", 400_000))
def test_a_nested_row_that_expands(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular, "EXPANDED", 1 << 24)
    file = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"question": [[0] * attack.given]}), file, compression="zstd")
    assert file.stat().st_size < 10_000
    with pytest.raises(UserError, match="its nested columns expand to more than 100 times its size") as caught:
        next(tabular.read_rows(file, ["question"]))
    assert "\n" not in str(caught.value)
    unread = pyarrow.table({"question": ["2 + 2?"], "mask": [[0] * attack.given]})
    parquet.write_table(unread, file, compression="zstd")
    assert list(tabular.read_rows(file, ["question"])) == [{"question": "2 + 2?"}]
    parquet.write_table(pyarrow.table({"question": [[0] * 100] * 50}), file)
    assert len(list(tabular.read_rows(file, ["question"]))) == 50
