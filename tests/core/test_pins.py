"""What --constraint a job gets that is kept to one site."""

from __future__ import annotations

import pytest

from cmscale.core.pins import pinned


@pytest.mark.parametrize(
    ("users", "becomes"),
    [
        ("", "aws-us-east-1"),
        ("gpu", "gpu&aws-us-east-1"),
        ("gpu&nvme", "gpu&nvme&aws-us-east-1"),
        ("gpu,nvme", "gpu,nvme&aws-us-east-1"),
        ("gpu&aws-us-east-1", "gpu&aws-us-east-1"),
    ],
)
def test_the_site_is_one_feature_more(users: str, becomes: str) -> None:
    assert pinned(users, "aws-us-east-1") == becomes


def test_a_longer_name_that_begins_alike_is_another_feature() -> None:
    assert pinned("aws-us-east-1a", "aws-us-east-1") == "aws-us-east-1a&aws-us-east-1"


@pytest.mark.parametrize("users", ["a|b", "a&b|c", "[a|b]", "[a*2&b*1]", "a*2", "a&(b|c)", "(a&b)|c", "a^b"])
def test_a_constraint_with_no_room_for_it_can_not_be_pinned(users: str) -> None:
    assert pinned(users, "aws-us-east-1") is None
