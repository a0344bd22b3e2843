"""What holds of budgets and of the bill in every world, whatever happens in it, and wherever the daemon is killed?

The clouds' own record of what they charge is compared with the limits, and with the bill.
"""

from __future__ import annotations

import pytest
from hypothesis import given

from cmscale.model import DOLLAR
from tests.properties.play import Play, overspent, stage
from tests.properties.test_properties import examples
from tests.properties.worlds import Trouble, World, worlds


def spent_within_limits(world: World) -> None:
    with stage(world) as on:
        on.story()
        on.heal()
        assert [*on.wrong, *overspent(on)] == []
        on.rest()
        assert [*on.wrong, *overspent(on)] == []
        billed_as_charged(on)


def billed_as_charged(on: Play) -> None:
    """The bill is the clouds' own; machines that went without a word may cost more, until they were missed."""
    bill = on.cluster.journal.bill(0, 10.0**12)
    billed, charged = sum(ms * use.price for use, ms in bill.items()), on.cluster.billed()
    silent = {Trouble.LOST, Trouble.RECLAIMED, Trouble.DIES, Trouble.SITE_SILENT, Trouble.SLURM_SILENT}
    if not any(fault.what in silent for fault in on.world.faults) and not on.world.deaths:
        machines_at_work = sum(1 for cloud in on.cluster.clouds.values() for each in cloud.billed if not each.ended)
        assert abs(billed - charged) <= machines_at_work * DOLLAR


@examples(6)
@given(worlds(budgets=2))
def test_a_period_costs_no_more_than_its_limit_and_one_start(world: World) -> None:
    spent_within_limits(world)


@pytest.mark.slow
@pytest.mark.timeout(900)
@examples(12)
@given(worlds(broken=True, deadly=True, budgets=3, jobs=15))
def test_nor_where_policies_fail_and_the_daemon_is_killed_at_any_call(world: World) -> None:
    spent_within_limits(world)
