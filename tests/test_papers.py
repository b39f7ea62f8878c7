"""The claims about the papers follow from the stored outcomes, and the pages stay short."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from lines import ROOT

sys.path.append(str(ROOT))

pytest.importorskip("orgthink_pocket")

from papers import claims, evolution, question, smollm2
from papers.__main__ import readme_table, results

KEYS = {"paper", "claim", "decided_by", "refuted_if", "measured", "low", "high", "holds", "outcomes"}


@pytest.mark.parametrize("paper", claims.PAPERS)
def test_every_figure_follows_from_the_outcomes(paper):
    found = claims.rows(paper)
    stored = claims.claims()
    assert claims.decided(stored, paper, claims.PAPERS[paper](found)) == stored
    page = (ROOT / "papers" / f"{paper}.md").read_text()
    assert results(paper, found, stored) in page
    assert len(page.split()) <= 1_500


@pytest.mark.thorough
def test_what_forks_can_win_is_computed_again():
    assert question.attainable() in (ROOT / "papers" / "question.md").read_text()


def test_the_table_of_the_real_model_follows_from_its_outcomes():
    page = (ROOT / "papers" / "smollm2.md").read_text()
    assert smollm2.table(claims.rows(smollm2.NAME)) in page and len(page.split()) <= 1_500


def test_the_table_of_evolution_strategies_follows_from_its_outcomes():
    page = (ROOT / "papers" / "evolution.md").read_text()
    assert evolution.table() in page and len(page.split()) <= 1_000


def test_the_table_of_the_readme_follows_too():
    assert readme_table() in (ROOT / "README.md").read_text()


def test_claims_are_few_and_their_outcomes_are_stored():
    stored = claims.claims()
    assert all(claim.keys() >= KEYS for claim in stored)
    decided = (claim["outcomes"] for claim in stored if claim["holds"] is not None)  # others are registered
    assert all((ROOT / "papers" / file).is_file() for file in decided)
    assert max(Counter(claim["paper"] for claim in stored).values()) <= 4


def test_another_outcome_changes_the_decision():
    found = claims.rows("asyncthink")
    swapped = found | {"asyncthink-after": found["asyncthink-before"], "asyncthink-before": found["asyncthink-after"]}
    assert claims.asyncthink(swapped)[0].measured == pytest.approx(-claims.asyncthink(found)[0].measured)
