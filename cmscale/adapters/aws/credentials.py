"""When do the credentials that boto3 found end for good?

Most are renewed by the SDK itself: those of an instance's or a container's role, of a process, of a role assumed.
Others are what a person was given for a while: a session token in the environment or in a file, a login by SSO.
What the SDK knows of it is read from its objects, with care: not all of it is promised to stay.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import boto3

_IN_FILES = ("aws_expiration", "expiration", "x_security_token_expires", "aws_session_expiration")
"""The words by which tools that write session tokens into ~/.aws/credentials say when these end."""

log = logging.getLogger(__name__)


def expiry(session: boto3.Session) -> float | None:
    """When they end; None if they are renewed without us, never end, or nobody says."""
    try:
        return _expiry(session)
    except Exception as error:
        log.debug("reading when credentials end failed", exc_info=error)
        _warn(f"{type(error).__name__}: {error}")
        return None


@cache
def _warn(why: str) -> None:
    """Once for each reason: every look asks, and whoever relies on being told ahead must hear that nobody will."""
    log.warning("it can't be told when the credentials for AWS end: %s", why)


def _expiry(session: boto3.Session) -> float | None:
    found: Any = session.get_credentials()
    if found is None:
        return None
    match found.method:
        case "env":
            ends = getattr(found, "_expiry_time", None)  # AWS_CREDENTIAL_EXPIRATION, which stays as it is
            return ends.timestamp() if isinstance(ends, datetime) else None
        case "shared-credentials-file" | "config-file" if found.token:
            profile = _profile(session)
            return next((_time(profile[word]) for word in _IN_FILES if word in profile), None)
        case "sso":
            return _of_login(session)
    return None


def _of_login(session: boto3.Session) -> float | None:
    """When a login by SSO ends; one that can be refreshed does so by itself, as long as its registration holds."""
    from botocore.utils import SSOTokenLoader

    config: Any = session._session.full_config  # noqa: SLF001 - boto3 has no word of its own for it
    profile = _profile(session)
    name = profile.get("sso_session")
    start_url = profile.get("sso_start_url") or config.get("sso_sessions", {}).get(name, {}).get("sso_start_url", "")
    provider: Any = session._session.get_component("credential_provider")  # noqa: SLF001
    cache = provider.get_provider("sso")._token_cache  # noqa: SLF001
    token = SSOTokenLoader(cache=cache)(start_url, session_name=name)
    return _time(token["registrationExpiresAt" if token.get("refreshToken") else "expiresAt"])


def _profile(session: boto3.Session) -> Mapping[str, str]:
    profiles: Mapping[str, Mapping[str, str]] = session._session.full_config["profiles"]  # noqa: SLF001
    return profiles.get(session.profile_name, {})


def _time(text: str) -> float:
    """A date as such files write it, in UTC if they say no zone."""
    date = datetime.fromisoformat(text.strip().removesuffix("UTC"))
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
