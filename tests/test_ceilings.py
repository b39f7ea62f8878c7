"""The house stays small: lines of code, words of the documents, and no phrases that readers have to read twice."""

from __future__ import annotations

import pytest
from lines import CEILINGS, ROOT, logical_lines, part, with_table
from words import documents, hits, names, phrases

README_WORDS = 700
ALL_WORDS = 35_000


@pytest.mark.parametrize(("name", "most"), CEILINGS.items())
def test_no_part_is_above_its_ceiling(name, most):
    assert part(name) <= most, f"{name} has {part(name):,} lines: remove some before you add others"


def test_documents_are_short():
    words = documents()
    assert words["README.md"] <= README_WORDS
    assert words["README.md and docs/"] <= ALL_WORDS


def test_no_forbidden_words():
    found = [f"{file.relative_to(ROOT)}:{line}: {kind}: {words}" for file, line, kind, words in hits()]
    assert not found, "\n".join(found)


def test_a_line_is_a_statement():
    assert logical_lines('"""Doc."""\n# comment\nx = (\n    1,\n    2,\n)\nif x: y = 2; z = 3\n') == 2


@pytest.mark.parametrize("between", ["\n", "\n| old |\n\n"])
def test_the_table_of_lines_is_written_between_its_marks(between):
    assert with_table(f"<!-- lines -->\n{between}<!-- /lines -->", "| new |") == (
        "<!-- lines -->\n\n| new |\n\n<!-- /lines -->"
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("The number that nobody set.", "pronoun without a person"),
        ("Who waits is told.", "who without a noun"),
        ("The setting of who asks.", "who without a noun"),
        ("The setting X is none.", "is none"),
        ("It begins anew.", "anew"),
        ("A file beside the model.", "beside"),
        ("Of a run that ended.", "sentence without a verb"),
    ],
)
def test_a_forbidden_phrase_is_found(text, kind):
    assert kind in {found for _, found, _ in phrases(text)}


@pytest.mark.parametrize(
    "text", ["`x is None` is tested.", "A worker who joins waits.", "Of course it does.", "None of them is set."]
)
def test_plain_english_is_left_alone(text):
    assert not list(phrases(text))


def test_a_participle_names_nothing():
    assert [name for _, _, name in names("def told(): ...\nasked_before = 1\ntelling = 2\n")] == [
        "told",
        "asked_before",
    ]
