"""With which tags for the cloud's bill is a machine started?"""

from __future__ import annotations

from cmscale.core.tagging import cost_tags
from cmscale.model import Job, JobId, Site, SiteKind
from tests.builders import EAST, job, view

ALL = Site(EAST, SiteKind.AWS, cost_tags=frozenset({"account", "user", "job"}))
ADA = job(1, user="ada", account="physics")
BOB = job(2, user="bob", account="physics")


def tags(*jobs: Job, site: Site = ALL) -> dict[str, str]:
    return dict(cost_tags(view(jobs=jobs), site, [each.id for each in jobs]))


def test_a_machine_bears_what_its_job_says() -> None:
    assert tags(ADA) == {"cm-scale:account": "physics", "cm-scale:user": "ada", "cm-scale:job": "1"}


def test_machines_of_one_launch_bear_what_their_jobs_have_in_common() -> None:
    assert tags(ADA, BOB) == {"cm-scale:account": "physics"}
    assert tags(ADA, job(3, user="ada", account="chemistry")) == {"cm-scale:user": "ada"}


def test_what_is_started_for_nobody_as_well_bears_nothing() -> None:
    assert cost_tags(view(jobs=[ADA]), ALL, [ADA.id, None]) == {}
    assert cost_tags(view(), ALL, [JobId("17")]) == {}


def test_only_what_the_site_wants_is_said() -> None:
    assert tags(ADA, site=Site(EAST, SiteKind.AWS, cost_tags=frozenset({"user"}))) == {"cm-scale:user": "ada"}
    assert tags(ADA, site=Site(EAST, SiteKind.AWS)) == {}


def test_tasks_of_an_array_bear_its_id_and_what_a_tag_cannot_hold_is_replaced() -> None:
    first, second = (job(n, array=JobId("17"), user="a b*", account="x" * 300) for n in (1, 2))
    assert tags(first, second) == {"cm-scale:account": "x" * 256, "cm-scale:user": "a b_", "cm-scale:job": "17"}
