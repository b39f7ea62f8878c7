"""Files and folders that a user names and somebody else made: corpora, prices, prompts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each

from orgthink.tools.corpus import read_passages
from orgthink.util.errors import UserError
from orgthink.util.tabular import json_object, read_rows

pytestmark = pytest.mark.thorough

CORPUS = "A folder of texts is read as text, and holds nothing but what lies in it."


def with_text(text: str) -> Callable[[Path], object]:
    return lambda file: file.write_text(text)


def link_to_a_secret(file: Path) -> None:
    secret = file.parent.parent / "secret"
    secret.write_text('{"contents": "password"}')
    file.symlink_to(secret)


@each(
    Attack("a passage nested 100,000 deep", CORPUS, "one line, exit code 2",
           with_text('{"contents":' + "[" * 100_000 + "]" * 100_000 + "}")),
    Attack("a passage with half a surrogate", CORPUS, "one line, exit code 2", with_text('{"contents": "\\ud800"}')),
    Attack("a passage that is a link to a file elsewhere", CORPUS, "one line, exit code 2", link_to_a_secret),
)  # fmt: skip
def test_a_corpus_of_somebody_else(attack: Attack, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    attack.given(folder / "texts.jsonl")
    with pytest.raises(UserError, match=r"texts\.jsonl") as caught:
        read_passages(folder)
    assert "\n" not in str(caught.value)


DEVICES = "A device or a pipe is refused before it is read: it may have no end, or no beginning."


@each(
    Attack("rows in JSON that are a device", DEVICES, "one line, exit code 2", "rows.jsonl"),
    Attack("rows in CSV that are a device", DEVICES, "one line, exit code 2", "rows.csv"),
    Attack("rows in parquet that are a device", DEVICES, "one line, exit code 2", "rows.parquet"),
    Attack("a document that is a device", DEVICES, "one line, exit code 2", "trace.json"),
)
def test_a_device(attack: Attack, tmp_path: Path) -> None:
    file = tmp_path / attack.given
    file.symlink_to("/dev/null")  # which ends at once where it is read nevertheless
    with pytest.raises(UserError, match="is a pipe or a device, not a file"):
        json_object(file) if file.suffix == ".json" else list(read_rows(file, ("question",)))
