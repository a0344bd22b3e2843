"""When do credentials end, by what boto3 itself finds in the environment and in files?"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from cmscale.adapters.aws import AwsSite
from cmscale.adapters.aws.credentials import expiry
from cmscale.model import SiteName

if TYPE_CHECKING:
    import boto3

ROOT = Path(__file__).parents[2]
ENDS = "2030-01-01T12:00:00Z"
AT = 1893499200.0
KEYS = "aws_access_key_id = AKIA0\naws_secret_access_key = secret\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, with nothing in it, and no machine that could have a role."""
    folder = tmp_path / ".aws"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for word in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "CREDENTIAL_EXPIRATION", "PROFILE"):
        monkeypatch.delenv(f"AWS_{word}", raising=False)
    for word in ("CONFIG_FILE", "SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(f"AWS_{word}", raising=False)
    return folder


def ends(profile: str = "") -> float | None:
    return AwsSite("c1", SiteName("east"), "us-east-1", {}, profile=profile).expires()


def test_keys_of_a_user_never_end(home: Path) -> None:
    (home / "credentials").write_text(f"[default]\n{KEYS}")
    assert ends() is None


def test_where_there_are_none_nothing_is_known() -> None:
    assert ends() is None


def test_a_session_token_in_the_environment_ends_when_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ASIA0")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    assert ends() is None
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", ENDS)
    assert ends() == AT


@pytest.mark.parametrize("word", ["aws_expiration", "x_security_token_expires"])
def test_a_session_token_in_a_file_ends_when_the_tool_that_wrote_it_says(home: Path, word: str) -> None:
    token = "aws_session_token = token\n"
    (home / "credentials").write_text(
        f"[default]\n{KEYS}{token}\n[hpc]\n{KEYS}{token}{word} = 2030-01-01T13:00:00+01:00\n"
    )
    assert ends() is None
    assert ends("hpc") == AT


def test_what_cannot_be_read_as_a_date_warns_of_nothing(home: Path) -> None:
    (home / "credentials").write_text(f"[default]\n{KEYS}aws_session_token = t\naws_expiration = soon\n")
    assert ends() is None


def ends_for_a_new_process() -> float | None:
    """The SDK looks up the home of logins when it is imported."""
    asks = "from tests.adapters.test_aws_credentials import ends; print(ends('hpc'))"
    done = subprocess.run([sys.executable, "-c", asks], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return None if done.stdout.strip() == "None" else float(done.stdout)


SSO = "sso_account_id = 1\nsso_role_name = hpc\nregion = us-east-1\n"
START = "https://example.awsapps.com/start"


def logged_in(home: Path, of: str, **more: str) -> None:
    cache = home / "sso" / "cache"
    cache.mkdir(parents=True)
    token = {"accessToken": "a", "startUrl": START, "region": "us-east-1", "expiresAt": ENDS} | more
    (cache / f"{hashlib.sha1(of.encode()).hexdigest()}.json").write_text(json.dumps(token))


def test_a_login_by_sso_ends_with_its_token(home: Path) -> None:
    (home / "config").write_text(f"[profile hpc]\nsso_start_url = {START}\nsso_region = us-east-1\n{SSO}")
    assert ends_for_a_new_process() is None
    logged_in(home, START)
    assert ends_for_a_new_process() == AT


def test_a_login_by_sso_that_is_refreshed_ends_with_its_registration(home: Path) -> None:
    (home / "config").write_text(
        f"[sso-session corp]\nsso_start_url = {START}\nsso_region = us-east-1\n[profile hpc]\nsso_session = corp\n{SSO}"
    )
    logged_in(home, "corp", refreshToken="r", registrationExpiresAt="2030-03-01T12:00:00UTC")
    assert ends_for_a_new_process() == AT + 59 * 86400


def test_an_sdk_that_cannot_be_read_is_told_once_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Another:
        def get_credentials(self) -> None:
            raise AttributeError("no such thing")

    credentials = cast("boto3.Session", Another())
    assert [expiry(credentials), expiry(credentials)] == [None, None]
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["it can't be told when the credentials for AWS end: AttributeError: no such thing"]
