"""The checks find what they are for: each mistake by what is said about it."""

from __future__ import annotations

import re

import pytest
from changes import Mistake
from findings import findings
from mistakes import MISTAKES

from fleetps.k8s.render import Wanted, render


@pytest.fixture(scope="module")
def objects(job_file) -> list:
    return render(Wanted(job_file))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_it_is_found(objects, mistake: Mistake) -> None:
    said = findings(mistake.made_in(objects))
    wanted = "|".join(re.escape(part) for part in mistake.said.split("|"))
    assert any(re.search(wanted, sentence) for sentence in said), said


def test_they_are_many_and_differ() -> None:
    assert len({mistake.what for mistake in MISTAKES}) == len(MISTAKES) >= 25
