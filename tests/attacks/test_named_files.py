"""Files and folders that a user names and somebody else made: corpora, prices, prompts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within

from orgthink.cli import main
from orgthink.cli.options import read_prices
from orgthink.organizations.prompts import style_of_file
from orgthink.tools.corpus import read_passages
from orgthink.util.errors import UserError

pytestmark = pytest.mark.thorough

CORPUS = "A folder of texts is read as text, and holds nothing but what lies in it."
TABLES = "A file that cannot be read is one line that names it, and nobody waits for it."


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


READERS: dict[str, Callable[[Path], object]] = {
    "prices": read_prices,
    "prompts": style_of_file,
}
UNREADABLE: dict[str, Callable[[Path], object]] = {
    "nested 100,000 deep": with_text("x = " + "[" * 100_000 + "]" * 100_000),
    "that are a pipe": os.mkfifo,
    "that are a link to /dev/zero": lambda file: file.symlink_to("/dev/zero"),
}


@each(
    *(
        Attack(f"{name} {how}", TABLES, "one line, exit code 2", (read, make))
        for name, read in READERS.items()
        for how, make in UNREADABLE.items()
    ),
)  # fmt: skip
def test_a_table_of_somebody_else(attack: Attack, tmp_path: Path) -> None:
    read, make = attack.given
    file = tmp_path / "table.toml"
    make(file)
    with pytest.raises(UserError, match=r"table\.toml") as caught:
        within(20, lambda: read(file))
    assert "\n" not in str(caught.value)


@each(
    Attack("a text to measure is a pipe", TABLES, "one line, exit code 2", os.mkfifo),
    Attack("a text to measure is a link to /dev/zero", TABLES, "one line, exit code 2",
           lambda file: file.symlink_to("/dev/zero")),
    Attack("a text to measure has a gigabyte", TABLES, "one line, exit code 2",
           lambda file: [file.touch(), os.truncate(file, 1 << 30)]),
)  # fmt: skip
def test_a_text_to_measure(attack: Attack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "text.json"
    attack.given(file)
    assert within(20, lambda: main(["measure", str(file)])) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "text.json" in line
