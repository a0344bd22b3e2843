"""When PySlurm is used, and why not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from cmscale.adapters.slurm.pyslurm.choice import Choice, Pyslurm, fitting
from cmscale.adapters.slurm.pyslurm.process import Broken, Missing, PyslurmProcess
from cmscale.ports import Misconfigured, Unavailable

FITS = Pyslurm(cast("PyslurmProcess", None), "it fits", frozenset(), frozenset())


class Process:
    """Tells about itself; is asked nothing else."""

    def __init__(self, **about: Any) -> None:
        told = {"version": "22.5.3", "slurm": [22, 5], "job_fields": ["JobID", "ExcNodes"]}
        self.about = {**told, "node_fields": ["NodeList", "Partition"], **about}
        self.closed = False

    def ask(self, what: str) -> dict[str, Any]:
        assert what == "about"
        return self.about

    def close(self) -> None:
        self.closed = True


def why(slurmctld: str = "22.05.8", **about: Any) -> str:
    process = Process(**about)
    choice = Choice(
        lambda: fitting("/opt/python", lambda: cast("PyslurmProcess", process), lambda: slurmctld),
        insist=False,
        rest_s=60.0,
    )
    backend = choice.backend()
    assert process.closed == (backend.name == "commands")
    return f"{backend.name}: {backend.why}"


def test_a_pyslurm_of_slurmctlds_release_is_used() -> None:
    assert why() == "pyslurm: PySlurm 22.5.3 and slurmctld 22.05.8 are of one release"
    assert why("25.11.2-1", version="25.11.0", slurm=[25, 11]).startswith("pyslurm: ")


@pytest.mark.parametrize(
    ("slurmctld", "about", "sentence"),
    [
        (
            "22.05.8",
            {"version": "25.11.2", "slurm": [25, 11]},
            "PySlurm 25.11.2 is installed, and slurmctld is 22.05.8",
        ),
        ("", {}, "PySlurm 22.5.3 is installed, and slurmctld is of a release it does not tell"),
        ("22.05.8", {"slurm": [23, 2]}, "PySlurm 22.5.3 was built for Slurm 23.2"),
        (
            "26.05.0",
            {"version": "26.5.0", "slurm": [26, 5]},
            "PySlurm 26.5.0 is installed, of which cm-scale knows the releases 22.5 to 25.11",
        ),
        ("22.05.8", {"job_fields": ["JobID"]}, "PySlurm 22.5.3 does not tell ExcNodes"),
    ],
)
def test_any_other_is_not_and_the_reason_is_told(slurmctld: str, about: dict[str, Any], sentence: str) -> None:
    assert why(slurmctld, **about) == f"commands: {sentence}"


class Found:
    """Answers of looking for PySlurm, one after the other; the last one again and again."""

    def __init__(self, *answers: Pyslurm | Exception) -> None:
        self._answers: Iterator[Pyslurm | Exception] = iter(answers)
        self._last: Pyslurm | Exception = answers[0]
        self.times = 0

    def __call__(self) -> Pyslurm:
        self.times += 1
        self._last = next(self._answers, self._last)
        if isinstance(self._last, Exception):
            raise self._last
        return self._last


def test_what_is_missing_is_looked_for_once() -> None:
    found = Found(Missing("PySlurm cannot be imported by /opt/python"))
    choice = Choice(found, insist=False, rest_s=60.0)
    assert choice.pyslurm() is choice.pyslurm() is None
    assert found.times == 1


def test_who_insists_is_told_what_to_do() -> None:
    choice = Choice(Found(Missing("PySlurm cannot be imported by /opt/python")), insist=True, rest_s=60.0)
    sentence = (
        r'^slurm\.backend is "pyslurm", but PySlurm cannot be imported by /opt/python; '
        r'install the PySlurm that was built for this Slurm, or set backend = "auto" under \[slurm\]$'
    )
    with pytest.raises(Misconfigured, match=sentence):
        choice.pyslurm()


def test_nothing_is_chosen_while_slurmctld_is_silent() -> None:
    choice = Choice(Found(Unavailable("no answer"), FITS), insist=False, rest_s=60.0)
    with pytest.raises(Unavailable, match="no answer"):
        choice.pyslurm()
    assert choice.pyslurm() is FITS


@pytest.mark.parametrize(("rest_s", "then"), [(3600.0, None), (0.0, FITS)])
def test_a_pyslurm_that_broke_rests_before_it_is_tried_again(rest_s: float, then: Pyslurm | None) -> None:
    choice = Choice(Found(FITS), insist=False, rest_s=rest_s)
    assert choice.pyslurm() is FITS
    choice.broke(Broken("PySlurm's process ended by SIGSEGV"))
    assert choice.pyslurm() is then


def test_the_rest_is_told() -> None:
    choice = Choice(Found(Broken("PySlurm's process ended by SIGSEGV")), insist=False, rest_s=600.0)
    assert choice.backend().why == "PySlurm's process ended by SIGSEGV; it is tried again after 10 min"


def test_who_insists_sees_no_slurm_through_a_broken_pyslurm() -> None:
    choice = Choice(Found(FITS), insist=True, rest_s=60.0)
    choice.pyslurm()
    with pytest.raises(Unavailable, match="SIGSEGV"):
        choice.broke(Broken("PySlurm's process ended by SIGSEGV"))


def test_after_a_silence_of_slurmctld_it_is_found_out_anew() -> None:
    found = Found(FITS, Missing("PySlurm 22.5.3 is installed, and slurmctld is 23.02.0"))
    choice = Choice(found, insist=False, rest_s=60.0)
    assert choice.pyslurm() is FITS
    choice.ask_anew()
    assert choice.pyslurm() is None
