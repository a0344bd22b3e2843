"""What an admin is told to change in Slurm."""

from __future__ import annotations

import re

import pytest

from cmscale.adapters.slurm.check import config, problems
from cmscale.model import NodeName, NodeRecord, Pool, PoolName, Shape, SiteName
from tests.adapters.slurm.recording import RECORDED

_GOOD = config((RECORDED / "22.05" / "config.txt").read_text())
_POOL = Pool(
    PoolName("t4"),
    SiteName("aws"),
    Shape(4, 15000, 1, "t4"),
    tuple(NodeName(f"t4-{number}") for number in (1, 2)),
    ("cloud",),
    frozenset({"fast"}),
)


def _node(name: str, *states: str, shape: Shape = _POOL.shape, partition: str = "cloud") -> NodeRecord:
    return NodeRecord(
        NodeName(name), frozenset(states or {"IDLE"}), shape, shape, frozenset({"fast"}), (partition, "other")
    )


_NODES = [_node("t4-1"), _node("t4-2")]


def test_settings_are_read_as_slurm_lists_them() -> None:
    assert _GOOD["ReturnToService"] == "2"
    assert _GOOD["SelectTypeParameters"] == "CR_CORE_MEMORY"
    assert _GOOD["ResumeRate"] == "300 nodes/min"


def test_a_right_slurm_has_no_problems() -> None:
    assert problems(_GOOD, (22, 5), _NODES, [_POOL]) == []


@pytest.mark.parametrize(
    ("setting", "version", "words"),
    [
        ({"ReturnToService": "1"}, (24, 11), "set ReturnToService=2"),
        ({"PrivateData": "none"}, (22, 5), "add cloud to PrivateData"),
        ({"GresTypes": "(null)"}, (24, 11), "add gpu to GresTypes"),
        ({"ResumeProgram": "/x"}, (24, 11), "ResumeProgram would power nodes .* SuspendExcNodes=t4-\\[1-2\\]"),
        ({"SuspendProgram": "/x", "SuspendExcNodes": "op[1,2],t4-1"}, (24, 11), "SuspendExcNodes=t4-2"),
        ({"SuspendProgram": "/x", "SuspendExcNodes": "t4-[1-2]:1"}, (24, 11), "SuspendExcNodes=t4-\\[1-2\\]"),
    ],
)
def test_a_wrong_setting_is_named_with_its_remedy(
    setting: dict[str, str], version: tuple[int, int], words: str
) -> None:
    found = problems(_GOOD | setting, version, _NODES, [_POOL])
    assert len(found) == 1
    assert re.search(words, found[0])


@pytest.mark.parametrize(
    "setting",
    [
        {"SuspendProgram": "/x", "SuspendExcNodes": "t4-[1-2]"},
        {"SuspendProgram": "/x", "SuspendExcParts": "cloud"},
        {"SuspendProgram": "(null)", "ResumeProgram": "(null)"},
    ],
)
def test_power_saving_of_other_nodes_is_no_problem(setting: dict[str, str]) -> None:
    assert problems(_GOOD | setting, (24, 11), _NODES, [_POOL]) == []


def test_a_slurmctld_that_gives_no_configuration_away_is_a_problem_where_slurmds_are_to_ask_it() -> None:
    (told,) = problems(_GOOD, (22, 5), _NODES, [_POOL], configless=True)
    assert told.startswith("slurm.conf: add enable_configless to SlurmctldParameters")
    configless = _GOOD | {"SlurmctldParameters": "cloud_dns,enable_configless"}
    assert problems(configless, (22, 5), _NODES, [_POOL], configless=True) == []


def test_cloud_nodes_show_by_themselves_from_23_02() -> None:
    assert problems(_GOOD | {"PrivateData": "none"}, (23, 2), _NODES, [_POOL]) == []


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([_node("t4-1")], "pool t4: Slurm has no t4-2"),
        ([], "pool t4: Slurm has no t4-[1-2]"),
        (
            [*_NODES[:1], _node("t4-2", shape=Shape(2, 15000, 1, "t4"))],
            "t4-2 2 CPUs where the pool promises 4",
        ),
        (
            [*_NODES[:1], _node("t4-2", shape=Shape(4, 99, 1, "t4"))],
            "t4-2 99 MiB of memory where the pool",
        ),
        ([*_NODES[:1], _node("t4-2", shape=Shape(4, 15000, 1, "a10"))], "t4-2 0 GPUs t4 where the pool promises 1"),
        ([*_NODES[:1], _node("t4-2", partition="x")], "partition cloud lacks t4-2"),
        (
            [*_NODES[:1], _node("t4-2", "IDLE", "CLOUD", "POWERED_DOWN")],
            'scontrol update nodename=t4-2 state=drain reason="cm-scale: off"',
        ),
    ],
)
def test_a_pool_that_slurm_knows_otherwise_is_named(nodes: list[NodeRecord], words: str) -> None:
    found = problems(_GOOD, (22, 5), nodes, [_POOL])
    assert len(found) == 1
    assert words in found[0]


def test_a_missing_feature_is_named() -> None:
    bare = [NodeRecord(node.name, node.states, node.shape, node.free, frozenset(), node.partitions) for node in _NODES]
    found = problems(_GOOD, (22, 5), bare, [_POOL])
    assert len(found) == 1
    assert "pool t4: the feature fast is missing on t4-[1-2]" in found[0]


def test_nodes_that_are_off_and_drained_are_as_they_should_be() -> None:
    off = [_node("t4-1", "IDLE", "POWERED_DOWN", "DRAIN"), _node("t4-2", "DOWN", "POWERED_DOWN")]
    assert problems(_GOOD, (22, 5), off, [_POOL]) == []
