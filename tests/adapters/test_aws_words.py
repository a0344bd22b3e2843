"""How EC2's words and ours are told into one another: names, error codes, quotas. No EC2 is needed."""

from __future__ import annotations

import pytest

from cmscale.adapters.aws import quota_family
from cmscale.adapters.aws.errors import result_of
from cmscale.adapters.aws.machines import started
from cmscale.adapters.aws.names import folded, launch_calls, names
from cmscale.model import NodeName, Operation, OpId, PoolName, Result, Verb


def launch(op: str) -> Operation:
    return Operation(OpId(op), Verb.START, PoolName("t4"), (NodeName("e1"),), 0.0)


def test_the_nodes_of_a_launch_are_a_list_that_slurm_can_read() -> None:
    nodes = [NodeName(name) for name in ("q9x", "a2-b3", "n12", "a1-b3", "q10x", "a1-b4", "n3")]
    label = folded(nodes)
    assert label == "a1-b[3-4],a2-b3,n[3,12],q10x,q9x"
    assert list(names(label)) == ["a1-b3", "a1-b4", "a2-b3", "n3", "n12", "q10x", "q9x"]


@pytest.mark.parametrize("length", [5, 64, 65, 300])
def test_a_token_is_never_too_long(length: int) -> None:
    one, other = launch("x" * length), launch("y" * length)
    (first,), (second,) = launch_calls(one), launch_calls(other)
    assert len(first.token) <= 64
    assert first.token != second.token


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        # A limit of the family, which closes all pools that share it...
        ("VcpuLimitExceeded", Result.QUOTA),
        ("InstanceLimitExceeded", Result.QUOTA),
        ("MaxSpotInstanceCountExceeded", Result.QUOTA),
        # ...and what this offer alone has no room for.
        ("InsufficientInstanceCapacity", Result.CAPACITY),
        ("InsufficientHostCapacity", Result.CAPACITY),
        ("InsufficientReservedInstanceCapacity", Result.CAPACITY),
        ("InsufficientVolumeCapacity", Result.CAPACITY),
        ("InsufficientFreeAddressesInSubnet", Result.CAPACITY),
        ("PrivateIpAddressLimitExceeded", Result.CAPACITY),
        ("NetworkInterfaceLimitExceeded", Result.CAPACITY),
        ("VolumeLimitExceeded", Result.CAPACITY),
        ("MaxIOPSLimitExceeded", Result.CAPACITY),
        ("SpotMaxPriceTooLow", Result.CAPACITY),
        ("UnfulfillableCapacity", Result.CAPACITY),
        ("RequestLimitExceeded", Result.THROTTLED),
        ("BandwidthLimitExceeded", Result.THROTTLED),
        ("Throttling", Result.THROTTLED),
        ("RequestThrottled", Result.THROTTLED),
        ("AuthFailure", Result.AUTH),
        ("UnauthorizedOperation", Result.AUTH),
        ("ExpiredToken", Result.AUTH),
        ("InvalidClientTokenId", Result.AUTH),
        ("InvalidAMIID.NotFound", Result.IMAGE),
        ("InvalidSnapshot.NotFound", Result.IMAGE),
        # What can never come of this request, in this zone.
        ("Unsupported", Result.BAD_REQUEST),
        ("UnsupportedOperation", Result.BAD_REQUEST),
        ("AttachmentLimitExceeded", Result.BAD_REQUEST),
        ("SecurityGroupsPerInterfaceLimitExceeded", Result.BAD_REQUEST),
        ("RequestResourceCountExceeded", Result.BAD_REQUEST),
        ("InvalidSubnetID.NotFound", Result.BAD_REQUEST),
        ("MissingParameter", Result.BAD_REQUEST),
        ("InvalidInstanceID.NotFound", Result.GONE),
        ("InternalError", Result.TRANSIENT),
        ("IncorrectInstanceState", Result.TRANSIENT),
        ("Unheard.Of", Result.TRANSIENT),
        ("", Result.TRANSIENT),
    ],
)
def test_codes_of_ec2_in_our_words(code: str, expected: Result) -> None:
    assert result_of(code) is expected


def test_a_machine_that_ends_at_once_says_why() -> None:
    instance = {
        "InstanceId": "i-1",
        "State": {"Name": "terminated"},
        "StateReason": {"Code": "Client.VolumeLimitExceeded", "Message": "Volume limit exceeded"},
    }
    outcome = started(instance)
    assert (outcome.result, outcome.detail) == (Result.CAPACITY, "i-1 ended at once: Volume limit exceeded")


@pytest.mark.parametrize(
    ("kinds", "market", "quota"),
    [
        (
            "a1.large c7i-flex.large d3en.xlarge h1.2xlarge im4gn.large is4gen.large m5.large r8g.large z1d.large",
            "on-demand",
            "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        ),
        ("m5.large i3en.large", "spot", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"),
        ("g4dn.xlarge g6e.xlarge gr6.4xlarge vt1.3xlarge", "on-demand", "Running On-Demand G and VT instances"),
        ("g4dn.xlarge", "spot", "All G and VT Spot Instance Requests"),
        ("p3.2xlarge p4d.24xlarge p5.48xlarge", "on-demand", "Running On-Demand P instances"),
        ("p2.xlarge p3dn.24xlarge p4de.24xlarge", "spot", "All P4, P3 and P2 Spot Instance Requests"),
        ("p5.48xlarge p5en.48xlarge", "spot", "All P5 Spot Instance Requests"),
        ("f1.2xlarge f2.6xlarge", "on-demand", "Running On-Demand F instances"),
        ("inf1.xlarge inf2.xlarge", "spot", "All Inf Spot Instance Requests"),
        ("trn1.2xlarge trn1n.32xlarge", "on-demand", "Running On-Demand Trn instances"),
        ("x1e.xlarge x2gd.medium x2idn.16xlarge", "spot", "All X Spot Instance Requests"),
        ("dl1.24xlarge dl2q.24xlarge", "on-demand", "Running On-Demand DL instances"),
        ("hpc6a.48xlarge hpc7g.16xlarge", "on-demand", "Running On-Demand HPC instances"),
        ("u-6tb1.metal u7i-12tb.224xlarge u7in-16tb.224xlarge", "on-demand", "Running On-Demand High Memory instances"),
        ("mac2.metal", "on-demand", "Running On-Demand MAC instances"),
    ],
)
def test_types_that_share_a_quota_have_its_name(kinds: str, market: str, quota: str) -> None:
    assert {quota_family(kind, market) for kind in kinds.split()} == {quota}
