"""Prices, quotas and instance types of a local EC2, asked through the real boto3; and pools that are suggested."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from cmscale.adapters.aws import AwsMarket, AwsPool, Buckets
from cmscale.adapters.aws.catalogue import NothingFits, Wish, suitable
from cmscale.adapters.aws.connection import Connection
from cmscale.adapters.aws.prices import listed
from cmscale.adapters.aws.types import InstanceType, gpu_word
from cmscale.lab.control import Control
from cmscale.lab.faults import Fault
from cmscale.lab.processes import end_child, start, wait_until
from cmscale.model import PoolName, SiteName
from cmscale.ports import Unavailable
from cmscale.shell import config as configuration
from tests.cli.program import Say, documented_keys, saying

REGION = "us-east-1"
SITE = SiteName("aws-us-east-1")
T4, DEAR, SPOT, ODD = PoolName("t4"), PoolName("dear"), PoolName("spot"), PoolName("odd")


@dataclass(frozen=True)
class Cloud:
    """An EC2 to talk to."""

    endpoint: str
    image: str
    subnets: Mapping[str, str]
    control: Control

    @property
    def actions(self) -> list[str]:
        return [call["action"] for call in self.control.calls()]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    folder = tmp_path_factory.mktemp("ec2")
    child = start(
        [sys.executable, "-m", "cmscale.lab.ec2", "--dir", folder, "--region", REGION],
        log=folder / "ec2.log",
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert wait_until((folder / "ec2.json").exists, 30), (folder / "ec2.log").read_text()
        told = json.loads((folder / "ec2.json").read_text())
        home = told["regions"][REGION]
        yield Cloud(told["endpoint"], home["image"], home["subnets"], Control(told["endpoint"]))
    finally:
        end_child(child)


@pytest.fixture
def cloud(served: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cloud]:
    """A cloud without faults, with its own prices, and our credentials for it."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIALAB0000000000000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "lab-secret-key")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    yield served
    served.control.clear_faults()
    served.control.set_prices(dict.fromkeys(served.control.ask("GET", "capacity")["prices"]))


Open = Callable[..., AwsMarket]


@pytest.fixture
def market(cloud: Cloud) -> Open:
    def opened(currency: str = "USD") -> AwsMarket:
        near, far = cloud.subnets["us-east-1a"], cloud.subnets["us-east-1b"]
        pools = {
            T4: AwsPool(("g4dn.xlarge",), cloud.image, (near,)),
            DEAR: AwsPool(("p5.48xlarge",), cloud.image, (near,)),
            SPOT: AwsPool(("g4dn.xlarge",), cloud.image, (far,), market="spot"),
            ODD: AwsPool(("x1e.32xlarge",), cloud.image, (near,)),
        }
        return AwsMarket(SITE, REGION, pools, endpoint_url=cloud.endpoint, currency=currency)

    return opened


# --- prices ----------------------------------------------------------------------------------------------------------


def test_prices_on_demand_are_the_list_s_and_those_at_spot_the_latest_of_the_pool_s_zone(
    market: Open, cloud: Cloud
) -> None:
    cloud.control.set_prices({"g4dn.xlarge/us-east-1b/spot": 0.21, "g4dn.xlarge/us-east-1a/spot": 0.33})
    found = market().prices([T4, DEAR, SPOT])
    assert found == {T4: 0.526, DEAR: 55.04, SPOT: pytest.approx(0.21)}


def test_a_price_that_the_list_does_not_have_is_missing(market: Open) -> None:
    assert market().prices([ODD, T4]) == {T4: 0.526}


def test_prices_in_another_currency_are_not_those_of_the_list(market: Open) -> None:
    assert market(currency="EUR").prices([T4, SPOT]) == {}


def product(unit: str = "Hrs", **dollars: str) -> str:
    dimension = {"unit": unit, "pricePerUnit": dollars or {"USD": "0.5"}}
    return json.dumps({"terms": {"OnDemand": {"a": {"priceDimensions": {"b": dimension}}}}})


@pytest.mark.parametrize(
    ("text", "prices"),
    [
        (product(), [0.5]),
        (product(USD="0.0000000000"), []),
        (product(CNY="3.1"), []),
        (product(USD="much"), []),
        (product(unit="Quantity"), []),
        ("{", []),
        ("[]", []),
        ('{"terms": {"OnDemand": {"a": {"priceDimensions": []}}}}', []),
        ('{"terms": {"Reserved": {}}}', []),
    ],
)
def test_what_is_not_understood_in_a_product_is_no_price(text: str, prices: list[float]) -> None:
    assert [*listed([text], "USD")] == prices


# --- quotas and types ------------------------------------------------------------------------------------------------


def test_quotas_are_read_to_the_last_page_by_the_names_that_pools_have(market: Open) -> None:
    found = market().quotas()
    assert found["Running On-Demand G and VT instances"] == found["All P5 Spot Instance Requests"] == 100_000
    assert "EC2-VPC Elastic IPs" not in found


def test_a_machine_counts_the_cpus_of_its_type(market: Open) -> None:
    assert market().cpus([T4, DEAR]) == {T4: 4, DEAR: 192}


def test_what_is_denied_is_told_with_the_right_that_is_missing(market: Open, cloud: Cloud) -> None:
    cloud.control.set_fault(Fault("ListServiceQuotas", code="AccessDeniedException", status=400, message="not you"))
    with pytest.raises(Unavailable, match=r"does not tell its quotas: .*: not you \(the right servicequotas:List"):
        market().quotas()


def test_an_endpoint_of_amazon_s_own_is_for_ec2_alone(cloud: Cloud) -> None:
    own = Connection(SITE, REGION, cloud.endpoint, "", Buckets()).service("pricing", "us-east-1")
    amazons = Connection(SITE, "us-west-2", "https://vpce-1.ec2.us-west-2.vpce.amazonaws.com", "", Buckets())
    assert own.meta.endpoint_url == cloud.endpoint
    assert amazons.service("pricing", "us-east-1").meta.endpoint_url == "https://api.pricing.us-east-1.amazonaws.com"
    assert amazons.service("service-quotas").meta.endpoint_url == "https://servicequotas.us-west-2.amazonaws.com"


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("H100", "h100"),
        ("A10G", "a10g"),
        ("Tesla M60", "m60"),
        ("RTX PRO Server 6000", "rtx_pro_6000"),
        ("L40S", "l40s"),
    ],
)
def test_a_gpu_has_the_name_that_slurm_would_give_it(name: str, word: str) -> None:
    assert gpu_word(name) == word


BOTH, LISTED = frozenset({"spot", "on-demand"}), frozenset({"on-demand"})
KNOWN = [
    InstanceType("g4.big", 8, 32768, 4, "t4", markets=LISTED, accelerated=True),
    InstanceType("g4.small", 4, 16384, 1, "t4", markets=BOTH, accelerated=True),
    InstanceType("g4.share", 4, 16384, markets=BOTH, accelerated=True),
    InstanceType("c.big", 16, 32768, markets=LISTED),
]


@pytest.mark.parametrize(
    ("wish", "names"),
    [
        (Wish("t4", 1), ["g4.small", "g4.big"]),
        (Wish("t4", 2), ["g4.big"]),
        (Wish("t4", 1, market="spot"), ["g4.small"]),
        (Wish(cpus=2), ["c.big"]),
        (Wish(gpus=1, cpus=5), ["g4.big"]),
    ],
)
def test_what_would_do_is_found_the_smallest_first(wish: Wish, names: list[str]) -> None:
    assert [each.name for each in suitable(KNOWN, wish, "r")] == names


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (Wish("h100", 1), 'no instance type in r has a GPU "h100"'),
        (Wish("t4", 9), "no instance type in r has 9 GPUs of type t4; the most is 4 GPUs of type t4"),
        (Wish("t4", 2, 9), "no instance type in r has 9 CPUs and 2 GPUs of type t4; the most is 8 CPUs"),
        (Wish("t4", 2, market="spot"), "what would do in r is not sold spot, only as: on-demand"),
    ],
)
def test_it_is_said_what_is_wanted_too_much(wish: Wish, said: str) -> None:
    with pytest.raises(NothingFits) as error:
        suitable(KNOWN, wish, "r")
    assert str(error.value) == said


# --- pools that are suggested ----------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path, cloud: Cloud) -> Path:
    path = tmp_path / "cmscale.toml"
    path.write_text(
        f"""\
[cluster]
name = "c"
state_dir = "state"
[sites.{SITE}]
kind = "aws"
region = "{REGION}"
endpoint_url = "{cloud.endpoint}"
[pools.t4]
site = "{SITE}"
nodes = "t4-[1-4]"
cpus = 4
mem_mb = 15000
partitions = ["gpu"]
[pools.t4.aws]
instance_type = "g4dn.xlarge"
image = "{cloud.image}"
subnet = "{cloud.subnets["us-east-1b"]}"
security_groups = ["sg-1"]
"""
    )
    return path


@pytest.fixture
def suggest(file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Say:
    return saying("--config", file, "pools", "suggest", monkeypatch=monkeypatch, capfd=capfd)


@pytest.mark.slow
def test_what_is_suggested_can_be_pasted_into_the_configuration(suggest: Say, file: Path, cloud: Cloud) -> None:
    said = suggest("--site", SITE, "--gpu", "h100", "--count", "8")
    assert (said.status, said.err) == (0, "")
    assert said.out.startswith(
        "# 1. p5.48xlarge: 192 CPUs, 2048 GiB, 8 h100 of 80 GiB, 32 EFA interfaces; $55.04 an hour"
    )
    file.write_text(file.read_text() + said.out)
    pools = configuration.load(file).pools
    new = pools[PoolName("h100")]
    assert (new.pool.shape.gpus, new.pool.shape.gpu_type, new.pool.partitions) == (8, "h100", ("gpu",))
    assert (new.aws.instance_type, new.aws.image, new.aws.security_groups) == ("p5.48xlarge", cloud.image, ("sg-1",))
    assert new.aws.subnet == cloud.subnets["us-east-1b"]
    assert not new.priced


@pytest.mark.slow
def test_suggestions_come_the_cheapest_first_under_names_that_nobody_has(suggest: Say, file: Path) -> None:
    told = json.loads(suggest("--site", SITE, "--gpu", "T4", "--spot", "--json").out)
    prices = [each["price_hour"] for each in told["pools"] if each["price_hour"] is not None]
    assert prices == sorted(prices)
    assert [each["name"] for each in told["pools"]][:2] == ["t4-spot", "g4dn-2xlarge-spot"]
    assert told["pools"][0]["zones"][0] == "us-east-1a"
    assert set(told) == documented_keys("pools suggest")
    assert {key for each in told["pools"] for key in each} == documented_keys("pools suggest", "pools")
    file.write_text("\n".join([file.read_text(), *(each["toml"] for each in told["pools"])]))
    assert len(configuration.load(file).pools) == 1 + len(told["pools"])


@pytest.mark.slow
def test_a_site_without_pools_gets_an_entry_that_says_what_to_fill_in_and_no_price_where_none_may_be_asked(
    suggest: Say, file: Path, cloud: Cloud
) -> None:
    without = file.read_text().split("[pools.t4]")[0].replace('kind = "aws"', 'kind = "aws"\nprices = false')
    file.write_text(without)
    before = cloud.actions.count("GetProducts")
    said = suggest("--site", SITE, "--cpus", "16", "--mem-gb", "30")
    assert "# Put your own image in the place of this one.\n" in said.out
    assert "# Put a subnet of yours in the place of this one, in us-east-1a or us-east-1b" in said.out
    assert "at a price that nobody knows" in said.out
    assert cloud.actions.count("GetProducts") == before
    file.write_text(without + said.out)
    assert all(not each.pool.shape.gpus for each in configuration.load(file).pools.values())


@pytest.mark.slow
def test_a_gpu_that_there_is_not_is_told_with_the_nearest(suggest: Say) -> None:
    said = suggest("--site", SITE, "--gpu", "h10")
    problem = 'no instance type in us-east-1 has a GPU "h10"; did you mean "h100"?'
    assert (said.status, said.out, said.problems) == (2, "", [problem])


def test_a_site_that_is_not_there_is_told_with_the_nearest(suggest: Say) -> None:
    assert f'did you mean "{SITE}"?' in suggest("--site", "aws-us-east-2", "--gpu", "t4").err
