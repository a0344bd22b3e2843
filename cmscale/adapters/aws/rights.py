"""Which right does each of our calls need?

The tables are all that we ever ask for: the policies that an admin is given are written from them, and a test compares
them with the calls that are in the code.
"""

from __future__ import annotations

WATCH = (
    "ec2:DescribeFleets",
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceStatus",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSpotInstanceRequests",
    "ec2:DescribeVolumes",
)
"""What is looked at again and again..."""
LOOK_UP = (
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeSubnets",
)
"""...and what is before a launch. EC2 allows each for all of a region or not at all."""
MONEY = ("pricing:GetProducts", "servicequotas:ListServiceQuotas")
"""What is asked of other services, which have their own regions."""

LAUNCH = "ec2:RunInstances"
FLEET = "ec2:CreateFleet"
"""A fleet's machines are launched in our name, so it takes the right to launch besides."""
TEMPLATE = "ec2:CreateLaunchTemplate"
NO_TEMPLATE = "ec2:DeleteLaunchTemplate"
TAG = "ec2:CreateTags"
"""Whoever makes something with tags needs it too."""
ROLE = "iam:PassRole"
"""Whoever launches with an instance profile needs it for the profile's role."""

CHANGE = ("ec2:GetConsoleOutput", "ec2:StartInstances", "ec2:StopInstances", "ec2:TerminateInstances")
"""What can be allowed for our own machines alone..."""
CLEAN = ("ec2:DeleteNetworkInterface", "ec2:DeleteVolume")
"""...and for what they leave behind."""

HEAR = ("sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:ReceiveMessage")

QUEUE = (
    "sqs:CreateQueue",
    "sqs:DeleteQueue",
    "sqs:GetQueueAttributes",
    "sqs:GetQueueUrl",
    "sqs:ListQueueTags",
    "sqs:SetQueueAttributes",
    "sqs:TagQueue",
)
RULE = (
    "events:DeleteRule",
    "events:DescribeRule",
    "events:ListTagsForResource",
    "events:ListTargetsByRule",
    "events:PutRule",
    "events:PutTargets",
    "events:RemoveTargets",
    "events:TagResource",
)
"""What setting an account up takes, and nothing else of ours."""

_OTHERWISE = {"DeleteMessageBatch": "sqs:DeleteMessage"}
"""Calls that need a right of another name."""

_BY_CALL = {
    right.partition(":")[2]: right
    for right in (
        *WATCH,
        *LOOK_UP,
        *MONEY,
        *(LAUNCH, FLEET, TEMPLATE, NO_TEMPLATE, TAG, ROLE),
        *CHANGE,
        *CLEAN,
        *HEAR,
        *QUEUE,
        *RULE,
    )
} | _OTHERWISE


def right_for(call: str) -> str:
    """The right that a call needs; empty for a call that is not one of ours."""
    return _BY_CALL.get(call, "")
