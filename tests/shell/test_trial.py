"""The made-up snapshots: do they show a policy enough to try it?"""

from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import pytest

from cmscale.model import Goal, JobId, NodeName, Snapshot, Wait, Want
from cmscale.shell import policies, trial
from cmscale.shell.policies import NoSettings, Policy
from cmscale.shell.shipped import share_dir

SHIPPED = sorted(path.stem for path in share_dir("policies").glob("*.py"))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_policy_is_in_order_and_finds_something_to_wish(name: str) -> None:
    (policy,) = policies.load((name,), None, MappingProxyType({}))
    assert trial.tried(policy) == ""
    assert list(policy.propose(trial.some_snapshot(), frozenset()))


def test_a_goal_or_a_wait_of_wrong_parts_is_told() -> None:
    def tried(said: object) -> str:
        def propose(view: Snapshot, claimed: frozenset[NodeName], settings: NoSettings) -> object:
            return [said]

        function: Callable[..., object] = propose
        told = trial.tried(Policy("mine", Path("mine.py"), "", NoSettings(), function))  # type: ignore[arg-type]
        return told.partition("asked about an empty snapshot, ")[2]

    name = NodeName("n1")
    assert tried(Goal(name, Want.GONE, "x", by=12)) == ""
    assert tried(Goal(name, Want.GONE, "x", by="noon")) == (  # type: ignore[arg-type]
        "the time by which n1 must be free is 'noon'; expected seconds since the epoch, or None"
    )
    assert tried(Wait(JobId("1"), "home is soon free")) == ""
    assert tried(Wait(1, "x")) == "the job that waits is 1; expected a job's id"  # type: ignore[arg-type]
    assert tried(Wait(JobId("1"), None)) == (  # type: ignore[arg-type]
        "the reason why job 1 waits is None; expected a text"
    )
