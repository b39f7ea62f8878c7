"""How many threads torch may use."""

import os

import pytest

from orgthink.util.threads import set_threads


@pytest.fixture
def cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)


@pytest.mark.parametrize(("spare", "threads"), [(0, "4"), (1, "3"), (4, "1")])
def test_cores_are_spared_and_waiting_threads_sleep(cores, spare, threads):
    set_threads(spare=spare)
    assert (os.environ["OMP_NUM_THREADS"], os.environ["OMP_WAIT_POLICY"]) == (threads, "passive")


def test_what_the_user_has_set_stays(cores, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    set_threads(spare=1)
    assert os.environ["OMP_NUM_THREADS"] == "7"
