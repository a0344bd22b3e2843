"""What does an error of EC2 mean in our words?

Each word has its own memory, so none may stand for another. Above all QUOTA, which closes every pool of a site that
shares the quota: only a limit of a family of instance types is one. What a subnet, a zone or the account's disks have
no room for concerns one offer for a while, as CAPACITY does. What a request asks too much of by itself is BAD_REQUEST.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from cmscale.adapters.aws.rights import right_for
from cmscale.model import Outcome, Result

NOT_NOW = "IncorrectInstanceState"
"""A machine cannot be started or stopped from the state it is in."""

_RESULTS: Mapping[str, Result] = {
    "ReservationCapacityExceeded": Result.CAPACITY,
    "SpotMaxPriceTooLow": Result.CAPACITY,
    "UnfulfillableCapacity": Result.CAPACITY,
    "InstanceLimitExceeded": Result.QUOTA,
    "MaxSpotInstanceCountExceeded": Result.QUOTA,
    "VcpuLimitExceeded": Result.QUOTA,
    "BandwidthLimitExceeded": Result.THROTTLED,
    "EC2ThrottledException": Result.THROTTLED,
    "RequestLimitExceeded": Result.THROTTLED,
    "SlowDown": Result.THROTTLED,
    "TooManyRequestsException": Result.THROTTLED,
    "AccountDisabled": Result.AUTH,
    "AuthFailure": Result.AUTH,
    "Blocked": Result.AUTH,
    "IncompleteSignature": Result.AUTH,
    "InvalidAccessKeyId": Result.AUTH,
    "InvalidClientTokenId": Result.AUTH,
    "MissingAuthenticationToken": Result.AUTH,
    "NotAuthorized": Result.AUTH,
    "OptInRequired": Result.AUTH,
    "PendingVerification": Result.AUTH,
    "RequestExpired": Result.AUTH,
    "SignatureDoesNotMatch": Result.AUTH,
    "UnauthorizedOperation": Result.AUTH,
    "UnrecognizedClientException": Result.AUTH,
    "IdempotentParameterMismatch": Result.BAD_REQUEST,
    "OperationNotPermitted": Result.BAD_REQUEST,
    "RequestResourceCountExceeded": Result.BAD_REQUEST,
    "ValidationError": Result.BAD_REQUEST,
    "InvalidInstanceID.NotFound": Result.GONE,
    "InvalidLaunchTemplateId.NotFound": Result.TRANSIENT,  # made anew when it is asked for again
    "InvalidLaunchTemplateName.NotFoundException": Result.TRANSIENT,
}

_PATTERNS: Sequence[tuple[str, Result]] = (
    (r"Insufficient.*", Result.CAPACITY),
    (r"(Attachment|SecurityGroupsPer\w+|Tag)LimitExceeded", Result.BAD_REQUEST),
    (r".*LimitExceeded|.*CountExceeded", Result.CAPACITY),
    (r"(Request)?Throttl.*", Result.THROTTLED),
    (r"AccessDenied.*|ExpiredToken.*", Result.AUTH),
    (r"InvalidAMI.*|InvalidSnapshot.*", Result.IMAGE),
    (r"(Invalid|Malformed|Missing|Unknown|Unsupported).*", Result.BAD_REQUEST),
)
"""For codes that stand for many; the first that fits counts. What fits none may pass by itself."""


_DENIED = r"UnauthorizedOperation|AccessDenied.*"
"""How a service says that a right is missing; often it does not say which."""


def result_of(code: str) -> Result:
    """What an error code of EC2 means in our words."""
    if code in _RESULTS:
        return _RESULTS[code]
    return next((result for pattern, result in _PATTERNS if re.fullmatch(pattern, code)), Result.TRANSIENT)


@dataclass(frozen=True, slots=True)
class Errors:
    """What boto3 raises, by what it means to us; known only once boto3 is there."""

    any: tuple[type[Exception], ...]
    lost: tuple[type[Exception], ...]
    """The call may have taken effect, its answer did not arrive."""
    credentials: tuple[type[Exception], ...]
    request: tuple[type[Exception], ...]

    def code(self, error: Exception) -> str:
        """EC2's code; empty if it was not EC2 that complained."""
        answer: Mapping[str, Any] = getattr(error, "response", None) or {}
        return str(answer.get("Error", {}).get("Code", ""))

    def outcome(self, error: Exception) -> Outcome:
        return Outcome(self.result(error), self.said(error))

    def result(self, error: Exception) -> Result:
        if code := self.code(error):
            return result_of(code)
        if isinstance(error, self.credentials):
            return Result.AUTH
        return Result.BAD_REQUEST if isinstance(error, self.request) else Result.TRANSIENT

    def said(self, error: Exception) -> str:
        """The complaint on one line; of a right that is missing, which one it is."""
        if code := self.code(error):
            message = getattr(error, "response", {})["Error"].get("Message", "")
            right = right_for(getattr(error, "operation_name", "")) if re.fullmatch(_DENIED, code) else ""
            missing = f" (the right {right} is missing: cm-scale aws policy)" if right else ""
            return " ".join(f"{code}: {message}{missing}".split())
        return " ".join(str(error).split()) or type(error).__name__


@cache
def errors() -> Errors:
    """The errors of the boto3 that is installed."""
    from botocore import exceptions as sdk
    from botocore.parsers import ResponseParserError

    return Errors(
        any=(sdk.BotoCoreError, sdk.ClientError, ResponseParserError),
        lost=(sdk.ConnectionError, sdk.HTTPClientError, ResponseParserError),
        credentials=(
            sdk.NoCredentialsError,
            sdk.PartialCredentialsError,
            sdk.CredentialRetrievalError,
            sdk.TokenRetrievalError,
            sdk.SSOError,
            sdk.UnauthorizedSSOTokenError,
        ),
        request=(sdk.ParamValidationError,),
    )
