"""Overrides: what a person's word changes in the journal, and what the daemon then does in a cluster in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cmscale.model import Event, EventKind, Fact, FactKind, NodeName, Override, PoolName, Power, Result
from cmscale.shell import config as configuration
from cmscale.shell.config import Config, ConfigError
from cmscale.shell.overrides import Author, Do, Done, Hold, Kind, Word, carry_out
from cmscale.sim.cloud import Flaw
from tests.builders import EAST, WEST, ask, pool
from tests.shell.cluster import Cluster

ANN = Author("ann", "head1")
POOL = """
[sites.{site}]
kind = "aws"
region = "{site}"

[pools.{name}]
site = "{site}"
nodes = "{name}-[1-8]"
cpus = 4
mem_mb = 15000
gpus = 1
gpu_type = "t4"
partitions = ["batch"]

[pools.{name}.aws]
instance_type = "g4dn.xlarge"
image = "ami-1"
subnet = "subnet-1"
"""


@dataclass
class Place:
    """A cluster with a cheap pool in the east and a dear one in the west, and the configuration that names them."""

    cluster: Cluster
    config: Config

    def say(self, do: Do, *names: str, for_s: float = 7200.0, why: str = "so says ann", **more: object) -> Done:
        word = Word(do, names, for_s, why, **more)  # type: ignore[arg-type]
        return carry_out(word, self.config, self.cluster.journal, self.cluster.clock.now(), ANN)

    def clear(self, *names: str, **more: object) -> Done:
        return self.say(Do.CLEAR, *names, for_s=0.0, why="", **more)

    @property
    def facts(self) -> list[Fact]:
        return list(self.cluster.journal.facts(self.cluster.clock.now()))

    @property
    def said(self) -> list[str]:
        told = self.cluster.journal.events(0.0)
        return [event.text for event in told if event.kind is EventKind.OVERRIDE]

    def power(self, name: str) -> Power:
        return self.cluster.decide().view.nodes[NodeName(name)].power


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    path = tmp_path / "cmscale.toml"
    tables = [POOL.format(name=name, site=site) for name, site in (("t4", EAST), ("w", WEST))]
    path.write_text(f'[cluster]\nname = "c"\n{"".join(tables)}', encoding="utf-8")
    pools = [pool(count=8), pool("w", 8, site=WEST, price_hour=0.9)]
    place = Place(Cluster(tmp_path / "journal.db", pools=pools), configuration.load(path))
    yield place
    place.cluster.journal.dispose()


# --- what is written -------------------------------------------------------------------------------------------------


def test_each_word_is_a_dated_fact_with_an_end_a_reason_and_an_author_and_an_event(place: Place) -> None:
    now = place.cluster.clock.now()
    place.say(Do.KEEP, "t4-1", "t4-2", why="the driver is debugged")
    place.say(Do.DRAIN_SITE, EAST, for_s=86400)
    place.say(Do.PAUSE, for_s=60)
    assert place.facts == [
        Fact(FactKind.DRAIN_SITE, EAST, now, now + 86400, "so says ann", "ann"),
        Fact(FactKind.KEEP, "t4-1", now, now + 7200, "the driver is debugged", "ann"),
        Fact(FactKind.KEEP, "t4-2", now, now + 7200, "the driver is debugged", "ann"),
        Fact(FactKind.PAUSE, "", now, now + 60, "so says ann", "ann"),
    ]
    assert place.said == [
        "ann on head1: keep t4-[1-2] for 2h: the driver is debugged",
        "ann on head1: drain-site east for 1d: so says ann",
        "ann on head1: pause for 1m: so says ann",
    ]


def test_the_same_word_said_again_is_told_again(place: Place) -> None:
    for _ in range(3):
        place.say(Do.KEEP, "t4-1")
        place.clear("t4-1")
    assert len(place.said) == 6
    assert place.facts == []


def test_a_reason_of_several_lines_becomes_one(place: Place) -> None:
    place.say(Do.PAUSE, why=" the switch\nis\tmoved\x1b[31m ")
    assert [fact.why for fact in place.facts] == ["the switch is moved [31m"]


REST = "t4-5, t4-6, t4-7, t4-8, w-1, w-2, w-3, w-4, w-5, w-6, w-7, w-8"
NO_END = "expected an end after 365d at most"


@pytest.mark.parametrize(
    ("do", "names", "more", "problem"),
    [
        (Do.KEEP, ("t4-11",), {}, 'no pool has a node "t4-11"; did you mean "t4-1"?'),
        (Do.KEEP, (), {}, "expected the names of nodes to keep"),
        (Do.DRAIN_SITE, ("eats",), {}, 'there is no site "eats"; did you mean "east"?'),
        (Do.DRAIN_SITE, (EAST, WEST), {}, "expected the name of one site"),
        (Do.PAUSE, ("t4-1",), {}, "a pause is of everything; expected no name"),
        (Do.KEEP, ("x" * 5000,), {}, f'no pool has a node "{"x" * 64}"; valid: t4-1, t4-2, t4-3, t4-4, {REST}'),
        (Do.PAUSE, (), {"why": " \n"}, "expected a reason of 1 to 1000 letters (--why), for those who meet this later"),
        (Do.PAUSE, (), {"for_s": 0.0}, f"{NO_END}, got 0 s; what shall last is a setting"),
        (Do.PAUSE, (), {"for_s": math.inf}, f"{NO_END}, got inf s; what shall last is a setting"),
        (Do.PAUSE, (), {"for_s": math.nan}, f"{NO_END}, got nan s; what shall last is a setting"),
        (Do.CLEAR, ("eastt",), {}, 'there is no node, pool or site "eastt"; did you mean "east"?'),
    ],
)
def test_what_cannot_be_meant_is_told_and_changes_nothing(
    place: Place, do: Do, names: tuple[str, ...], more: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError) as told:
        place.say(do, *names, **more)  # type: ignore[arg-type]
    assert told.value.problems[0] == problem
    assert (place.facts, place.said) == ([], [])


def test_of_many_unknown_names_some_are_told(place: Place) -> None:
    with pytest.raises(ConfigError) as told:
        place.say(Do.KEEP, *(f"nix-{number}" for number in range(100)))
    assert len(told.value.problems) == 6
    assert told.value.problems[-1] == "95 more names are not known"


# --- clear -----------------------------------------------------------------------------------------------------------


def test_clear_ends_all_that_stands_against_a_name_and_says_whose_word_it_was(place: Place) -> None:
    cluster = place.cluster
    now = cluster.clock.now()
    cluster.journal.put_fact(Fact(FactKind.QUARANTINE, "t4-1", now, now + 600, "it never joined", "cm-scale"))
    place.say(Do.KEEP, "t4-1", "t4-2")
    done = place.clear("t4-1")
    assert [(hold.kind, hold.subject) for hold in done.cleared] == [(Kind.KEEP, "t4-1"), (Kind.QUARANTINE, "t4-1")]
    assert [(hold.kind, hold.subject) for hold in done.standing] == [(Kind.KEEP, "t4-2")]
    said = "clear keep t4-1 (by ann: so says ann); quarantine t4-1 (by cm-scale: it never joined)"
    assert place.said[-1] == f"ann on head1: {said}"


def test_clear_of_one_kind_leaves_the_others(place: Place) -> None:
    now = place.cluster.clock.now()
    place.cluster.journal.put_fact(Fact(FactKind.QUARANTINE, "t4-1", now, now + 600, "it never joined", "cm-scale"))
    place.say(Do.KEEP, "t4-1")
    place.clear("t4-1", only=Kind.QUARANTINE)
    assert [fact.kind for fact in place.facts] == [FactKind.KEEP]


def test_a_pause_is_ended_only_by_that_word(place: Place) -> None:
    place.say(Do.PAUSE)
    place.say(Do.DRAIN_SITE, EAST)
    place.clear(EAST)
    assert [fact.kind for fact in place.facts] == [FactKind.PAUSE]
    place.clear(pause=True)
    assert place.facts == []


def test_nothing_to_clear_changes_nothing_and_is_no_event(place: Place) -> None:
    assert place.clear("t4-1", EAST, "w", pause=True) == Done()
    assert place.said == []


def test_what_is_no_opinion_is_never_cleared(place: Place) -> None:
    now = place.cluster.clock.now()
    place.cluster.journal.put_fact(Fact(FactKind.STOPPED, "t4-1", now, now + 600, "its disk is kept", "cm-scale"))
    assert place.clear("t4-1") == Done()
    assert [fact.kind for fact in place.facts] == [FactKind.STOPPED]


def test_a_node_that_the_configuration_has_lost_can_be_cleared(place: Place) -> None:
    now = place.cluster.clock.now()
    place.cluster.journal.put_fact(Fact(FactKind.KEEP, "old-1", now, now + 600, "it was ours", "bob"))
    assert place.clear("old-1").cleared == (Hold(Kind.KEEP, "old-1", now + 600, "it was ours", "bob"),)


def test_a_word_that_was_replaced_since_it_was_read_stays(place: Place) -> None:
    place.say(Do.KEEP, "t4-1", why="first")
    (first,) = place.facts
    place.cluster.clock.wait(1)
    place.say(Do.KEEP, "t4-1", why="second")
    journal = place.cluster.journal
    journal.override(Override(Event(0.0, EventKind.OVERRIDE, "", "late"), drop=(first,)))
    assert [fact.why for fact in place.facts] == ["second"]


# --- what the daemon then does ---------------------------------------------------------------------------------------


def served(place: Place, name: str = "t4-1") -> None:
    """Let a job start a machine and end, so that the machine is idle."""
    job = place.cluster.slurm.submit(1, ask(), run_s=5)
    place.cluster.run_until(lambda: job in place.cluster.slurm.done)
    assert place.power(name) is Power.ON


def test_a_kept_machine_stays_idle_until_the_keep_ends_by_itself(place: Place) -> None:
    served(place)
    place.say(Do.KEEP, "t4-1", for_s=600)
    place.cluster.tick(58, every_s=10)
    assert place.power("t4-1") is Power.ON
    assert "DRAIN" not in place.cluster.slurm.records[NodeName("t4-1")].states
    place.cluster.run_until(lambda: place.cluster.finished, limit=60)


def test_a_machine_goes_at_once_when_its_keep_is_cleared(place: Place) -> None:
    served(place)
    place.say(Do.KEEP, "t4-1")
    place.cluster.tick(20, every_s=10)
    place.clear("t4-1")
    place.cluster.run_until(lambda: place.cluster.finished, limit=30)


def test_a_keep_outlives_the_daemon(place: Place) -> None:
    served(place)
    place.say(Do.KEEP, "t4-1")
    place.cluster.daemon = place.cluster.start()
    place.cluster.tick(20, every_s=10)
    assert place.power("t4-1") is Power.ON


def test_a_kept_node_that_is_off_is_not_started_but_by_a_job(place: Place) -> None:
    place.say(Do.KEEP, "t4-1")
    place.cluster.tick(30)
    assert place.cluster.starts == []
    served(place)


def test_a_kept_machine_that_never_joins_can_be_looked_into_while_others_are_started(place: Place) -> None:
    cloud = place.cluster.clouds[EAST]
    place.cluster.slurm.submit(1, ask(), run_s=5)
    cloud.spoil(Flaw.NEVER_BOOTS, node=NodeName("t4-1"))
    place.cluster.run_until(lambda: bool(cloud.machines))
    place.say(Do.KEEP, "t4-1", for_s=86400)
    place.cluster.tick(100, every_s=10)
    assert [machine.node for machine in cloud.machines.values() if machine.node == "t4-1"] == ["t4-1"]
    place.cluster.run_until(lambda: bool(place.cluster.slurm.done), every_s=10)


def test_what_its_cloud_takes_back_is_drained_although_it_is_kept(place: Place) -> None:
    served(place)
    place.say(Do.KEEP, "t4-1")
    place.cluster.clouds[EAST].reclaim(NodeName("t4-1"), 120)
    place.cluster.tick(5)
    assert "DRAIN" in place.cluster.slurm.records[NodeName("t4-1")].states


def test_a_drained_site_is_left_while_its_jobs_finish_and_new_ones_run_elsewhere(place: Place) -> None:
    slurm, cluster = place.cluster.slurm, place.cluster
    first = slurm.submit(1, ask(), run_s=300)
    cluster.run_until(lambda: bool(slurm.running))
    place.say(Do.DRAIN_SITE, EAST, for_s=86400)
    second = slurm.submit(2, ask(), run_s=5)
    cluster.run_until(lambda: second in slurm.done)
    assert slurm.done[second] == ("w-1",)
    assert first in slurm.running
    cluster.run_until(lambda: first in slurm.done, limit=400)
    assert slurm.done[first] == ("t4-1",)
    cluster.run_until(lambda: not cluster.clouds[EAST].machines, limit=20)
    assert len(cluster.starts) == 2


def test_an_idle_machine_of_a_drained_site_goes_at_once_and_a_kept_one_stays(place: Place) -> None:
    slurm, cluster = place.cluster.slurm, place.cluster
    slurm.submit(1, ask(), count=2, run_s=5)
    cluster.run_until(lambda: len(slurm.done) == 2)
    place.say(Do.KEEP, "t4-2")
    place.say(Do.DRAIN_SITE, EAST, for_s=86400)
    cluster.tick(15)
    assert [machine.node for machine in cluster.clouds[EAST].machines.values()] == ["t4-2"]


def test_when_a_drain_is_cleared_what_has_not_gone_yet_serves_again(place: Place) -> None:
    slurm, cluster = place.cluster.slurm, place.cluster
    slurm.submit(1, ask(), run_s=300)
    cluster.run_until(lambda: bool(slurm.running))
    place.say(Do.DRAIN_SITE, EAST)
    cluster.tick(5)
    assert "DRAIN" in slurm.records[NodeName("t4-1")].states
    place.clear(EAST)
    cluster.tick(2)
    assert "DRAIN" not in slurm.records[NodeName("t4-1")].states


def test_a_pool_that_refused_is_tried_again_as_soon_as_it_is_cleared(place: Place) -> None:
    cluster = place.cluster
    for cloud in cluster.clouds.values():
        cloud.refuse(Result.CAPACITY)
    job = cluster.slurm.submit(1, ask())
    cluster.tick(30)
    cluster.clouds[EAST].relent()
    cluster.tick(10)
    before = len(cluster.starts)
    (hold,) = place.clear("t4").cleared
    assert (hold.kind, hold.why) == (Kind.CLOSED, "capacity: InsufficientInstanceCapacity")
    cluster.tick(2)
    assert len(cluster.starts) == before + 1
    cluster.run_until(lambda: job in cluster.slurm.done)
    told = [event for event in cluster.journal.events(0.0) if event.kind is EventKind.OPENED]
    assert [event.subject for event in told] == [PoolName("t4")]


def test_a_name_in_quarantine_may_be_started_again_as_soon_as_it_is_cleared(place: Place) -> None:
    now = place.cluster.clock.now()
    for name in place.cluster.pools[0].nodes + place.cluster.pools[1].nodes:
        fact = Fact(FactKind.QUARANTINE, name, now, now + 6000, "it never joined", "cm-scale")
        place.cluster.journal.put_fact(fact)
    place.cluster.slurm.submit(1, ask())
    place.cluster.tick(10)
    assert place.cluster.starts == []
    place.clear("t4-5")
    place.cluster.tick(2)
    assert [call.split()[2] for call in place.cluster.starts] == ["t4-5"]
