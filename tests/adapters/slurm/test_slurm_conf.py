"""The include file, and what slurm.conf says about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cmscale.adapters.slurm.conf import Declared, includes, node_set, render, site_partitions, write
from cmscale.model import NodeName, Pool, PoolName, Shape, SiteName


def _pool(name: str, *nodes: str, site: str = "aws-east", partitions: tuple[str, ...] = ("cloud",)) -> Pool:
    return Pool(
        PoolName(name),
        SiteName(site),
        Shape(4, 15000, 1, "t4"),
        tuple(NodeName(node) for node in nodes),
        partitions,
        frozenset({"gpu", "fast"}),
    )


def test_the_include_declares_nodes_sets_and_the_partitions_we_own() -> None:
    declared = [
        Declared(_pool("t4", "t4-1", "t4-2"), 100, {"Sockets": "1"}),
        Declared(_pool("a-b", "ab-1", site="aws-west", partitions=("cloud", "batch"))),
    ]
    text = render(declared, {"cloud"})
    assert [line for line in text.splitlines() if line and not line.startswith("#")] == [
        (
            "NodeName=t4-[1-2] CPUs=4 RealMemory=15000 Gres=gpu:t4:1 Feature=aws-east,fast,gpu Weight=100 State=CLOUD "
            "Sockets=1"
        ),
        "NodeName=ab-1 CPUs=4 RealMemory=15000 Gres=gpu:t4:1 Feature=aws-west,fast,gpu Weight=1 State=CLOUD",
        "NodeSet=cmscale_t4 Nodes=t4-[1-2]",
        "NodeSet=cmscale_a_b Nodes=ab-1",
        "NodeSet=cmscale_aws_east Nodes=t4-[1-2]",
        "NodeSet=cmscale_aws_west Nodes=ab-1",
        "NodeSet=cmscale_all Nodes=ab-1,t4-[1-2]",
        "PartitionName=cloud Nodes=cmscale_t4,cmscale_a_b State=UP",
    ]
    assert "cm-scale" in text.splitlines()[0]


def test_a_pools_own_words_win() -> None:
    assert "Weight=7 " in render([Declared(_pool("t4", "t4-1"), 100, {"Weight": "7"})], ())


def test_two_pools_that_would_share_a_node_set_are_refused() -> None:
    with pytest.raises(ValueError, match="cmscale_a_b"):
        render([Declared(_pool("a-b", "n1")), Declared(_pool("a_b", "n2"))], ())


def test_a_pool_that_is_all_of_its_site_may_have_its_name() -> None:
    assert render([Declared(_pool("east", "n1", site="east"))], ()).count("NodeSet=cmscale_east ") == 1


def test_no_pools_give_an_empty_include() -> None:
    assert all(line.startswith("#") for line in render([], ()).splitlines())


def test_a_node_set_is_named_with_letters_and_digits() -> None:
    assert node_set("t4.large-spot") == "cmscale_t4_large_spot"


def test_the_file_is_replaced_only_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "cm-scale.conf"
    assert write(path, "one\n")
    first = path.stat().st_ino
    assert not write(path, "one\n")
    assert path.stat().st_ino == first
    assert write(path, "two\n")
    assert path.read_text() == "two\n"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["cm-scale.conf"]


_SLURM_CONF = """\
ClusterName=lab
# PartitionName=old Nodes=n1
PartitionName=DEFAULT MaxTime=INFINITE
partitionname=batch Nodes=n[1-2] \\
   Default=YES State=UP # PartitionName=no
PartitionName=a,b Nodes=n1
Include cm-scale.conf
"""


def test_the_partitions_of_a_site_are_those_its_slurm_conf_defines() -> None:
    assert site_partitions(_SLURM_CONF) == {"batch", "a", "b"}


@pytest.mark.parametrize(
    ("text", "there"),
    [
        (_SLURM_CONF, True),
        ("include /etc/slurm/cm-scale.conf\n", True),
        ("Include /elsewhere/cm-scale.conf\n", False),
        ("#Include cm-scale.conf\n", False),
        ("ClusterName=x\n", False),
    ],
)
def test_an_include_of_our_file_is_seen(text: str, there: bool) -> None:
    assert includes(text, Path("/etc/slurm/cm-scale.conf")) is there
