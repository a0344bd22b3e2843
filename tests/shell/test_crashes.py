"""Killed at every boundary between journal, call and outcome: no orphan, no double, no operation lost, all jobs served.

Scenes lead the daemon through all it ever does; deaths.py says where a process can end and what is looked at then. The
list of places is not kept here: it is what the scenes pass, and must have every verb and every result in it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cmscale import ports
from cmscale.model import Result, Verb
from tests.shell.deaths import (
    LOOKS_OF_JOURNAL,
    LOOKS_OF_PROVIDER,
    LOOKS_OF_SCHEDULER,
    OF_A_PERSON,
    Stage,
    die_everywhere,
    undisturbed,
)
from tests.shell.scenes import SCENES, Scene

NOBODYS = {Verb.ASSIGN, Verb.STAGE}
"""Verbs that nothing carries out yet."""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> list[Stage]:
    """Every scene, with nobody killed."""
    return [undisturbed(scene, tmp_path_factory.mktemp("scene")) for scene in SCENES]


def calls(port: type) -> set[str]:
    return {name for name, member in vars(port).items() if callable(member) and not name.startswith("_")}


def test_without_a_death_every_job_is_served_and_everything_is_given_back(played: list[Stage]) -> None:
    assert {stage.scene.name: stage.wrong for stage in played if stage.wrong} == {}


def test_before_and_after_each_verb_there_is_a_place_to_die(played: list[Stage]) -> None:
    places = {(boundary.when, boundary.call) for stage in played for boundary in stage.boundaries}
    assert places >= {(when, verb.value) for when in ("before", "after") for verb in set(Verb) - NOBODYS}


def test_machines_are_stopped_and_deleted_gently_and_hard_and_nodes_drained_up_and_off(played: list[Stage]) -> None:
    deeds = {boundary.deed for stage in played for boundary in stage.boundaries}
    assert deeds >= {"stop", "stop hard", "delete", "delete hard", "drain", "drain off", "of prolog", "of epilog"}


def test_each_call_of_each_port_is_a_look_or_a_place_to_die(played: list[Stage]) -> None:
    died = {boundary.call for stage in played for boundary in stage.boundaries}
    assert calls(ports.Provider) - LOOKS_OF_PROVIDER <= died
    assert calls(ports.Scheduler) - LOOKS_OF_SCHEDULER <= died
    assert calls(ports.Journal) - LOOKS_OF_JOURNAL - OF_A_PERSON <= died


def test_calls_end_in_every_result(played: list[Stage]) -> None:
    assert {result for stage in played for result in stage.watch.results} == set(Result) - {
        Result.BUDGET
    }  # for which no call is made


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name.replace(" ", "-"))
def test_killed_at_any_place_nothing_is_orphaned_made_twice_or_lost(scene: Scene, tmp_path: Path) -> None:
    findings = die_everywhere(scene, tmp_path)
    assert findings.wrong == []
    assert findings.worlds > 20
