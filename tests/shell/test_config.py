from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from sqlalchemy import URL, make_url

from cmscale.model import (
    DOLLAR,
    AtLimit,
    Bucket,
    Limits,
    NodeName,
    NodeOrder,
    Period,
    PoolName,
    Queue,
    Reap,
    Shape,
    SiteKind,
    SiteName,
    Window,
)
from cmscale.ports import Misconfigured
from cmscale.shell import config, schema, values
from cmscale.shell.config import Config, ConfigError
from cmscale.shell.schema import Mode

EXAMPLE = Path(__file__).parents[2] / "etc" / "cmscale.toml"

SMALL = """\
[cluster]
name = "c1"

[sites.east]
kind = "aws"
region = "us-east-1"

[pools.t4]
site = "east"
nodes = "t4-[1-16]"
cpus = 4
mem_mb = 15000
partitions = ["cloud"]

[pools.t4.aws]
instance_type = "g4dn.xlarge"
image = "ami-1"
subnet = "subnet-1"
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the small file, with lines exchanged and lines added at the end."""

    def write(change: dict[str, str] | None = None, more: str = "") -> Path:
        text = SMALL
        for old, new in (change or {}).items():
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "x.toml"
        path.write_text(text + more)
        return path

    return write


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    return [line.removeprefix(f"{path}:") for line in str(caught.value).splitlines()]


# --- the example file ------------------------------------------------------------------------------------------------


def test_the_example_file_loads() -> None:
    loaded = config.load(EXAMPLE)
    assert loaded.cluster == "mycluster"
    assert loaded.mode is Mode.OBSERVE
    assert loaded.limits == Limits()
    assert loaded.pools[PoolName("t4")].pool.shape == Shape(4, 15000, 1, "t4")


def keys(table: type[BaseModel], at: str) -> Iterator[tuple[str, str, object, bool]]:
    for name, field in table.model_fields.items():
        key = str(field.validation_alias or name)
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            yield at, key, field.get_default(call_default_factory=True), field.is_required()


TABLES = [
    *keys(schema.ClusterTable, "cluster"),
    *keys(schema.SlurmSettings, "slurm"),
    *keys(schema.LimitsTable, "limits"),
    *keys(schema.SiteTable, "sites.aws-us-east-1"),
    *keys(schema.PoolTable, "pools.t4"),
    *keys(schema.AwsSettings, "pools.t4.aws"),
    *keys(schema.PartitionTable, "partitions.cloud"),
    *keys(schema.CostTable, "cost"),
    *keys(schema.BudgetTable, "budgets.cloud"),
]


def written_default(table: str, key: str) -> object:
    """The key's value in the example, or what its comment calls the default."""
    section = re.split(r"^\[", EXAMPLE.read_text().split(f"\n[{table}]", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    line = next((line for line in section.splitlines() if re.match(rf"{key} *=", line)), None)
    assert line, f"{table}.{key} is not in {EXAMPLE}"
    named = re.search(r"# default (\S+?)(?:[;,]|$)", line)
    return tomllib.loads(f"{key} = {named[1]}" if named else line)[key]


@pytest.mark.parametrize(("table", "key", "default", "required"), TABLES, ids=str)
def test_every_key_is_in_the_example_with_its_default(table: str, key: str, default: object, required: bool) -> None:
    written = written_default(table, key)
    if required:
        return
    match default:
        case float():
            assert values.duration(written) == default if isinstance(written, str) else written == default
        case None:
            assert not written
        case tuple():
            assert (written or []) == list(default)  # an empty hostlist is an empty text
        case Path():
            assert written == str(default)
        case Mode() | schema.Market() | schema.SlurmBackend() | NodeOrder() | AtLimit() | Reap():
            assert written == default.value
        case _:
            assert written == default


# --- what is read ----------------------------------------------------------------------------------------------------


def test_a_small_file_gets_the_defaults(write: Write) -> None:
    loaded = config.load(write())
    assert loaded.policies[0] == "leave_reclaimed"
    assert loaded.policies[-1] == "release_idle"
    assert loaded.limits == Limits()
    assert loaded.tick_s == 1
    assert loaded.slurm.time_limit_s == 20
    assert loaded.slurm.conf is None
    assert loaded.state_dir == Path("/var/lib/cm-scale")


def test_a_pool_has_its_names_in_order_and_its_site_as_a_feature(write: Write) -> None:
    settings = config.load(write({"cpus = 4": 'cpus = 4\nfeatures = ["fast"]'})).pools[PoolName("t4")]
    assert settings.pool.nodes[:2] == ("t4-1", "t4-2")
    assert settings.pool.features == {"fast", "east"}
    assert settings.weight == 100
    assert settings.aws.instance_type == "g4dn.xlarge"


def test_a_site_knows_its_region(write: Write) -> None:
    site = config.load(write()).sites[SiteName("east")]
    assert (site.site.kind, site.site.region, site.endpoint_url) == (SiteKind.AWS, "us-east-1", "")


def test_relative_paths_start_at_the_folder_of_the_file(write: Write, tmp_path: Path) -> None:
    loaded = config.load(
        write({'name = "c1"': 'name = "c1"\nstate_dir = "state"\npolicy_dir = "mine"'}, 'user_data = "/boot.sh"\n')
    )
    assert (loaded.state_dir, loaded.policy_dir) == (tmp_path / "state", tmp_path / "mine")
    assert loaded.pools[PoolName("t4")].aws.user_data == Path("/boot.sh")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("", Path("/var/lib/cm-scale/journal.db")),
        ("/srv/journal.db", Path("/srv/journal.db")),
        (
            "postgresql://cm-scale@db:5433/cm?sslmode=require",
            make_url("postgresql://cm-scale@db:5433/cm?sslmode=require"),
        ),
        ("postgresql+psycopg:///cm", make_url("postgresql+psycopg:///cm")),
    ],
)
def test_the_journal_is_a_file_or_a_database(write: Write, written: str, meant: Path | URL) -> None:
    assert config.load(write({'name = "c1"': f'name = "c1"\njournal = "{written}"'})).journal == meant


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('"mysql://db/cm"', 'expected a path, or a URL such as "postgresql://.*", and none with "mysql"'),
        ('"postgresql://a:secret@db/cm"', "credentials do not belong in this file; .* passfile"),
        ('"postgresql://a@db/cm?password=secret"', "credentials do not belong in this file"),
        ('"postgresql://a:secret@db:x/cm"', "expected a path, or a URL"),
        ("5", "expected a path, or a URL .*, got 5"),
    ],
)
def test_a_journal_that_can_be_nowhere_is_told_and_a_password_never(write: Write, written: str, told: str) -> None:
    path = write({'name = "c1"': f'name = "c1"\njournal = {written}'})
    with pytest.raises(ConfigError, match=f"cluster.journal: {told}") as error:
        config.load(path)
    assert "secret" not in str(error.value)


def test_tables_of_policies_are_kept_as_written(write: Write) -> None:
    assert config.load(write(more='[policy.mine]\nx = "5m"\n')).policy_tables == {"mine": {"x": "5m"}}


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("10m", 600), ("1.5h", 5400), ("2d", 172800), ("250ms", 0.25), ("0s", 0)]
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert values.duration(text) == seconds


def test_the_environment_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMSCALE_CONFIG", "/somewhere/c.toml")
    assert config.default_path() == Path("/somewhere/c.toml")
    monkeypatch.delenv("CMSCALE_CONFIG")
    assert config.default_path() == Path("/etc/cm-scale/cmscale.toml")


def test_a_configuration_cannot_be_changed(write: Write) -> None:
    loaded: Config = config.load(write())
    with pytest.raises(TypeError):
        loaded.pools["other"] = loaded.pools[PoolName("t4")]  # type: ignore[index]


# --- what pools and partitions say of one another --------------------------------------------------------------------

LICENCES = """\

[pools.licences]
site = "east"
nodes = "lic-1"
partitions = []

[pools.licences.aws]
instance_type = "t3.small"
image = "ami-1"
subnet = "subnet-1"
"""


def pool_table(name: str, partitions: str, more: str = "") -> str:
    """A second pool as a text."""
    table = SMALL[SMALL.index("[pools.t4]") :].replace("t4", name).replace('["cloud"]', partitions)
    return "\n" + table.replace("cpus = 4", f"cpus = 4\n{more}")


def queues(path: Path) -> dict[str, Collection[str] | None]:
    return {name: queue.pools for name, queue in config.load(path).queues.items()}


def test_a_pool_in_no_partition_helps_others_and_needs_no_shape(write: Write) -> None:
    loaded = config.load(write({"cpus = 4": 'cpus = 4\nhelpers = "lic-1"'}, LICENCES))
    assert loaded.pools[PoolName("licences")].pool.shape == Shape(0, 0)
    assert loaded.pools[PoolName("licences")].pool.partitions == ()
    assert loaded.pools[PoolName("t4")].pool.helpers == ("lic-1",)


def test_a_pool_may_have_hours_scripts_and_machines_that_are_kept(write: Write, tmp_path: Path) -> None:
    script = tmp_path / "before.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    more = 'static = true\nnever_terminate = "t4-[1-2]"\norder = "least-used"\nhours = ["sat,sun 00:00-24:00"]'
    settings = config.load(
        write({"cpus = 4": f'cpus = 4\n{more}\nprolog = "before.sh"\nscripts_limit = "3s"\nshutdown_limit = "1m"'})
    ).pools[PoolName("t4")]
    assert settings.pool.static
    assert settings.pool.never_terminate == {NodeName("t4-1"), NodeName("t4-2")}
    assert settings.pool.order is NodeOrder.LEAST_USED
    assert settings.pool.hours == (Window(frozenset({5, 6}), 0, 24 * 3600),)
    assert settings.pool.shutdown_limit_s == 60
    assert (settings.scripts.prolog, settings.scripts.epilog, settings.scripts.limit_s) == (script, None, 3)


def test_a_site_has_buckets_and_the_account_of_its_profile(write: Write) -> None:
    keys = 'profile = "lab"\nlaunch_burst = 20\nlaunch_refill = 0.5\ncall_burst = 3'
    path = write({'region = "us-east-1"': f'region = "us-east-1"\n{keys}'})
    site = config.load(path).sites[SiteName("east")].site
    assert (site.account, site.launched, site.calls) == ("lab", Bucket(20, 0.5), Bucket(3, 2))
    path.write_text(path.read_text().replace('profile = "lab"', 'profile = "lab"\naccount = "physics"'))
    assert config.load(path).sites[SiteName("east")].site.account == "physics"


def test_partitions_without_wishes_have_no_queue(write: Write) -> None:
    assert config.load(write()).queues == {}


def test_a_partition_says_what_it_wants_of_its_jobs(write: Write) -> None:
    table = '[partitions.cloud]\nqueue_length = 3\nage = "5m"\njobs_per_node = 2\nmix_sites = true\n'
    assert config.load(write(more=table)).queues == {"cloud": Queue("cloud", None, 3, 300, 2, mix_sites=True)}


def test_a_partition_starts_machines_of_its_own_pools_alone(write: Write) -> None:
    more = pool_table("cpu", '["cloud"]') + '[partitions.cloud]\npools = ["cpu"]\n'
    assert queues(write(more=more)) == {"cloud": {"cpu"}}


def test_a_pin_keeps_every_other_partition_off_its_pools(write: Write) -> None:
    more = pool_table("cpu", '["cloud", "short"]') + pool_table("big", '["short"]') + "[partitions.short]\npin = true\n"
    assert queues(write(more=more)) == {"short": None, "cloud": {"t4"}}


def test_a_pin_holds_only_the_pools_that_its_partition_names(write: Write) -> None:
    table = '[partitions.short]\npin = true\npools = ["big"]\n'
    more = pool_table("cpu", '["cloud", "short"]') + pool_table("big", '["cloud", "short"]') + table
    assert queues(write(more=more)) == {"short": {"big"}, "cloud": {"t4", "cpu"}}


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ("[partitions.clod]", 'partitions.clod: no pool is in a partition "clod"; did you mean "cloud"?'),
        (
            '[partitions.cloud]\npools = ["tt4"]',
            'partitions.cloud.pools: no pool "tt4" is in this partition; did you mean "t4"?',
        ),
        (
            "[partitions.cloud]\nqueue_lenght = 3",
            'partitions.cloud.queue_lenght: unknown key; did you mean "queue_length"?',
        ),
        ("[partitions.cloud]\nqueue_length = -1", "partitions.cloud.queue_length: expected 0 or more, got -1"),
        ('[partitions.cloud]\npin = "yes"', 'partitions.cloud.pin: expected true or false, got "yes"'),
        ("[partitions.cloud]\nage = 5", "partitions.cloud.age: expected a duration such as"),
    ],
)
def test_a_partition_that_makes_no_sense_is_an_error(write: Write, tables: str, expected: str) -> None:
    assert any(expected in line for line in problems(write(more=tables + "\n")))


def test_two_partitions_may_not_want_one_pool_for_themselves(write: Write) -> None:
    both = '"cloud", "short"'
    tables = "[partitions.cloud]\npin = true\n[partitions.short]\npin = true\n"
    (told,) = problems(write({'"cloud"': both}, tables))
    assert told.endswith('partitions.short.pin: pool "t4" is pinned to partition "cloud" already')
    tables = '[partitions.cloud]\npin = true\n[partitions.short]\npools = ["t4"]\n'
    (told,) = problems(write({'"cloud"': both}, tables))
    assert told.endswith('partitions.short.pools: pool "t4" is pinned to partition "cloud" already')


@pytest.mark.parametrize(
    ("helpers", "expected"),
    [
        ("lik-1", 'pools.t4.helpers: no other pool has a node "lik-1"; did you mean "lic-1"?'),
        ("t4-2", 'pools.t4.helpers: "t4-2" is a node of this pool itself; helpers are nodes of other pools'),
        ("lic-[1", 'pools.t4.helpers: expected node names such as "t4-[1-16]", got "lic-[1"'),
    ],
)
def test_helpers_are_nodes_of_other_pools(write: Write, helpers: str, expected: str) -> None:
    (told,) = problems(write({"cpus = 4": f'cpus = 4\nhelpers = "{helpers}"'}, LICENCES))
    assert expected in told


def test_pools_that_wait_for_one_another_are_told_with_their_circle(write: Write) -> None:
    waiting = LICENCES.replace('nodes = "lic-1"', 'nodes = "lic-1"\nhelpers = "t4-3"')
    (told,) = problems(write({"cpus = 4": 'cpus = 4\nhelpers = "lic-1"'}, waiting))
    assert re.search(
        r"wait for one another's helpers for ever: (t4 -> licences -> t4|licences -> t4 -> licences)$", told
    )


def test_every_problem_of_pools_is_told_beside_those_of_the_schema(write: Write) -> None:
    told = problems(write({"cpus = 4": 'helpers = "x"\nmax = 99'}, "[partitions.clod]\n"))
    assert [line.split(": ")[1] for line in told] == [
        "pools.t4.cpus",
        "pools.t4.helpers",
        "pools.t4.max",
        "partitions.clod",
    ]


# --- money -----------------------------------------------------------------------------------------------------------


def test_a_budget_has_its_limit_and_for_what_it_is(write: Write) -> None:
    money = '[cost]\ncurrency = "EUR"\ntime_zone = "Europe/Paris"\n'
    more = '[budgets.gpu]\nper = "day"\nlimit = 99.5\npool = "t4"\nuser = "*"\nat_limit = "drain"\ncount_ahead = "2h"\n'
    rules = config.load(write(more=money + more)).rules
    (budget,) = rules.budgets
    assert (budget.per, budget.limit, budget.text) == (Period.DAY, round(99.5 * DOLLAR), "99.5 EUR a day")
    assert (budget.pool, budget.user, budget.account) == ("t4", "*", "")
    assert (budget.at_limit, budget.warn_at, budget.ahead_s) == (AtLimit.DRAIN, 0.8, 7200)
    assert rules.periods.offset_s(1_700_000_000) == 3600


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('pool = "tt4"', 'budgets.gpu.pool: there is no pool "tt4"; did you mean "t4"?'),
        ('per = "weak"', 'budgets.gpu.per: unknown per "weak"; valid: day, hour, month'),
        ('at_limit = "drains"', 'budgets.gpu.at_limit: unknown at_limit "drains"; did you mean "drain"?'),
        ("limit = 0", "budgets.gpu.limit: expected more than 0, got 0"),
        ("warn_at = 80", "budgets.gpu.warn_at: expected 1 or less, got 80"),
        ("limt = 8", 'budgets.gpu.limt: unknown key; did you mean "limit"?'),
        ('count_ahead = "2"', 'budgets.gpu.count_ahead: expected a duration such as "30s", "10m" or "2h", got "2"'),
        (
            'user = "ada"\naccount = "physics"',
            "budgets.gpu.account: a budget is a user's or an account's; make it two of them",
        ),
    ],
)
def test_what_is_wrong_with_a_budget_is_told_with_what_is_valid(write: Write, line: str, expected: str) -> None:
    whole = {"per": 'per = "day"', "limit": "limit = 5"} | {line.partition(" ")[0]: line}
    told = problems(write(more="[budgets.gpu]\n" + "\n".join(whole.values()) + "\n"))
    assert [each.partition(": ")[2] for each in told] == [expected]


def test_a_budget_that_drains_needs_the_policy_that_does_it(write: Write) -> None:
    drains = '[budgets.gpu]\nper = "day"\nlimit = 5\nat_limit = "drain"\n'
    (told,) = problems(write({'name = "c1"': 'name = "c1"\npolicies = ["serve_queue"]'}, drains))
    assert 'budgets.gpu.at_limit: "drain" is done by the policy respect_budgets, which is not in cluster.pol' in told
    assert config.load(write(more=drains)).rules.budgets


def test_a_time_zone_that_does_not_exist_is_told(write: Write) -> None:
    (told,) = problems(write(more='[cost]\ntime_zone = "Europe/Pariss"\n'))
    assert told.endswith('cost.time_zone: there is no time zone "Europe/Pariss"; did you mean "Europe/Paris"?')


# --- what is wrong ---------------------------------------------------------------------------------------------------

AFTER = len(SMALL.splitlines()) + 1


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "cpus = 4",
            "instnce = 4",
            '11: pools.t4.instnce: unknown key; did you mean "instance_type" in [pools.t4.aws]?',
        ),
        ("image =", "imag =", '17: pools.t4.aws.imag: unknown key; did you mean "image"?'),
        ("[sites.east]", "[site.east]", '4: site: unknown key; did you mean "sites"?'),
        ("cpus = 4", "cpus = 0", "11: pools.t4.cpus: expected 1 or more, got 0"),
        (
            "[sites.east]",
            '[slurm]\nconf_server = "head 6817"\n[sites.east]',
            '5: slurm.conf_server: expected hosts such as "head:6817" or "head1,head2", got "head 6817"',
        ),
        ("cpus = 4", "cpus = true", "11: pools.t4.cpus: expected a whole number, got true"),
        ("cpus = 4", 'cpus = "4"', '11: pools.t4.cpus: expected a whole number, got "4"'),
        ("cpus = 4", "", "8: pools.t4.cpus: missing; this key is required"),
        ('site = "east"', 'site = "eats"', '9: pools.t4.site: there is no site "eats"; did you mean "east"?'),
        ('"aws"', '"asw"', '5: sites.east.kind: unknown kind "asw"; did you mean "aws"?'),
        ("[pools.t4.aws]", "[pools.t4.azure]", "8: pools.t4.aws: missing; this key is required"),
        ("partitions", "partition", '13: pools.t4.partition: unknown key; did you mean "partitions"?'),
        ('["cloud"]', '"cloud"', '13: pools.t4.partitions: expected a list such as ["a", "b"], got "cloud"'),
        ('["cloud"]', '["a", "a"]', '13: pools.t4.partitions: "a" is named twice'),
        ('"t4-[1-16]"', '""', '10: pools.t4.nodes: expected node names such as "t4-[1-16]", got ""'),
        ('"t4-[1-16]"', '"a,b,a"', '10: pools.t4.nodes: "a" is named twice in "a,b,a"'),
        ('"t4-[1-16]"', '"a[1-3,2]"', '10: pools.t4.nodes: "a2" is named twice in "a[1-3,2]"'),
        ('"c1"', '"my cluster"', "2: cluster.name: expected a name of letters, digits, dots, dashes and underscores"),
    ],
)
def test_a_problem_is_told_with_its_line_and_a_way_out(write: Write, old: str, new: str, expected: str) -> None:
    assert any(line.startswith(expected) for line in problems(write({old: new})))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("max = 17", "pools.t4.max: 17 machines are more than the 16 names in nodes"),
        ("keep = 17", "pools.t4.keep: 17 machines are more than the 16 names in nodes"),
        ("max = 3\nkeep = 4", "pools.t4.keep: 4 machines are more than max = 3"),
        (
            'keep_running = "t4-[15-17]"',
            'pools.t4.keep_running: "t4-17" is not among the names in nodes; did you mean "t4-',
        ),
        ("gpus = -1", "pools.t4.gpus: expected 0 or more, got -1"),
        ('gpu_type = "t4"', 'pools.t4.gpu_type: "t4" is given, but gpus is 0'),
        ('market = "spott"', 'pools.t4.market: unknown market "spott"; did you mean "spot"?'),
        ("price_hour = nan", "pools.t4.price_hour: expected a finite number"),
        ('features = ["a,b"]', "pools.t4.features: expected a name"),
        ('slurm = { weight = "3" }', 'pools.t4.slurm: "weight" is written by cm-scale itself'),
        ('slurm = { Sockets = "1\\nX=2" }', "pools.t4.slurm: expected words of a NodeName line"),
        ('boot_limit = "0s"', "pools.t4.boot_limit: expected more than 0"),
        ('boot_limit = "5 parsecs"', 'expected a duration such as "30s", "10m" or "2h", got "5 parsecs"'),
        (
            'market = "spot"\nstatic = true',
            'pools.t4.static: a machine of market = "spot" can\'t be powered off and kept',
        ),
        ('market = "spot"\nnever_terminate = "t4-1"', "pools.t4.never_terminate: a machine of market"),
        (
            'never_terminate = "t5-1"',
            'pools.t4.never_terminate: "t5-1" is not among the names in nodes; did you mean "t4-1"?',
        ),
        ('order = "least_used"', 'pools.t4.order: unknown order "least_used"; did you mean "least-used"?'),
        ('hours = ["mon-fry 20:00-06:00"]', 'there is no day "fry" in "mon-fry 20:00-06:00"; did you mean "fri"?'),
        ("hours = [5]", 'pools.t4.hours: expected hours such as "mon-fri 20:00-06:00", got 5'),
        ('hours = "20:00-06:00"', 'pools.t4.hours: expected a list such as ["a", "b"], got "20:00-06:00"'),
        ('shutdown_limit = "0s"', "pools.t4.shutdown_limit: expected more than 0"),
        ("stopped_price_hour = -0.5", "pools.t4.stopped_price_hour: expected 0 or more, got -0.5"),
        ('prolog = "none.sh"', "none.sh can't be run (No such file or directory)"),
        ('epilog = "x.toml"', "x.toml can't be run (it is not executable); chmod +x "),
        ('epilog = "."', "can't be run (it is no file)"),
        ("boot_limit = 5", 'expected a duration such as "30s", "10m" or "2h"; add a unit, "5s" if seconds are meant'),
    ],
)
def test_a_pool_that_makes_no_sense_is_an_error(write: Write, more: str, expected: str) -> None:
    path = write({"cpus = 4": f"cpus = 4\n{more}"})
    assert any(expected in line for line in problems(path))


def test_all_problems_are_told_at_once_in_the_order_of_the_file(write: Write) -> None:
    told = problems(write({'"c1"': "3", "cpus = 4": "cpus = 0"}, "[limits]\nmin_up = 5\n"))
    assert [int(line.split(":")[0]) for line in told] == [2, 11, AFTER + 1]


def test_pools_may_not_share_names(write: Write) -> None:
    second = SMALL[SMALL.index("[pools.t4]") :].replace("pools.t4", "pools.other").replace("t4-[1-16]", "t4-[16-20]")
    assert problems(write(more=second)) == [f'{AFTER + 2}: pools.other.nodes: "t4-16" is a node of pool "t4" already']


def test_machines_on_premises_are_not_available_yet(write: Write) -> None:
    assert '"onprem" is not available yet' in problems(write({'"aws"': '"onprem"'}))[0]


@pytest.mark.parametrize("text", ["a[1-2]x", "a[1-2]-b[1-2]-c", "b1,a[1-2]x,c1"])
def test_slurm_knows_no_text_after_the_last_bracket(text: str) -> None:
    with pytest.raises(ValueError, match="Slurm knows no text after the last bracket"):
        values.hostlist(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a1x,a2x", ["a1x", "a2x"]),
        ("r[1-2]-n[08,10]", ["r1-n08", "r1-n10", "r2-n08", "r2-n10"]),
        ("b[2,1],a1", ["a1", "b1", "b2"]),
    ],
)
def test_hostlists_become_names_in_order(text: str, names: list[str]) -> None:
    assert list(values.hostlist(text)) == names


def test_no_cloud_may_be_called_home(write: Write) -> None:
    told = problems(write({"[sites.east]": "[sites.home]", 'site = "east"': 'site = "home"'}))
    assert told == ['4: sites.home: "home" is where the nodes are that Slurm has by itself; choose another name']


# --- what a pool offers on AWS ---------------------------------------------------------------------------------------


def test_jobs_ask_for_a_fabric_by_a_feature_of_the_pools_that_have_one(write: Write) -> None:
    with_fabric = write({'subnet = "subnet-1"': 'subnet = "subnet-1"\nefa = true'})
    assert config.load(with_fabric).pools[PoolName("t4")].pool.features == {"east", "efa"}
    assert config.load(write()).pools[PoolName("t4")].pool.features == {"east"}


def test_a_pool_may_offer_several_types_and_subnets(write: Write) -> None:
    change = {
        'instance_type = "g4dn.xlarge"': 'instance_types = ["g4dn.xlarge", "g5.xlarge"]',
        'subnet = "subnet-1"': 'subnets = ["subnet-1", "subnet-2"]',
    }
    aws = config.load(write(change)).pools[PoolName("t4")].aws
    assert (aws.types, aws.nets) == (("g4dn.xlarge", "g5.xlarge"), ("subnet-1", "subnet-2"))


ONE_TYPE, TWO_TYPES = 'instance_type = "g4dn.xlarge"', 'instance_types = ["g4dn.xlarge", "g5.xlarge"]'


@pytest.mark.parametrize(
    ("change", "more", "expected"),
    [
        ({}, 'subnets = ["subnet-2"]', "subnets: subnet is given too; name all of them here, or one there"),
        ({ONE_TYPE: ""}, "", "instance_type: missing; this key is required"),
        ({ONE_TYPE: "instance_types = []"}, "", "instance_type: missing; this key is required"),
        (
            {ONE_TYPE: TWO_TYPES},
            'placement_group = "near"',
            "placement_group: it binds a pool to one type in one zone, and instance_types names several",
        ),
        (
            {'subnet = "subnet-1"': 'subnets = ["subnet-1", "subnet-2"]'},
            'capacity_reservation = "cr-1"',
            "capacity_reservation: it binds a pool to one type in one zone, and subnets names several",
        ),
        (
            {},
            "capacity_block = true",
            "capacity_block: a capacity block is a capacity reservation; name it in capacity_reservation",
        ),
        (
            {"cpus = 4": 'cpus = 4\nmarket = "spot"'},
            'capacity_reservation = "cr-1"',
            'capacity_reservation: a pool of market = "spot" takes nothing from a reservation; use "on-demand"',
        ),
        (
            {},
            'allocation_strategy = "lowest-prise"',
            'allocation_strategy: unknown for market = "on-demand"; did you mean "lowest-price"?',
        ),
        (
            {},
            'allocation_strategy = "diversified"',
            'allocation_strategy: unknown for market = "on-demand"; valid: lowest-price, prioritized',
        ),
        (
            {},
            "public_address = true\nefa = true",
            "public_address: EC2 gives none to a machine of several interfaces; use efa = 1, or no public address",
        ),
        (
            {ONE_TYPE: f"instance_types = {[f'm5.{n}' for n in range(301)]}".replace("'", '"')},
            "",
            "instance_types: 301 pairs of a type and a subnet are more than the 300 of a fleet",
        ),
    ],
)
def test_what_an_aws_pool_cannot_be_is_told_at_its_key(
    write: Write, change: dict[str, str], more: str, expected: str
) -> None:
    (told,) = problems(write(change, f"{more}\n"))
    assert told.partition(": ")[2] == f"pools.t4.aws.{expected}"


@pytest.mark.parametrize("key", ["aws_secret_access_key", "aws_access_key_id", "password", "session_token"])
def test_credentials_are_sent_where_they_belong_and_never_repeated(write: Write, key: str) -> None:
    (told,) = problems(write({"region": f'{key} = "hush"\nregion'}))
    assert "credentials do not belong in this file" in told
    assert "hush" not in told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[cluster]\nname = \n", "2: not valid TOML: Invalid value, at column 8"),
        ("[cluster", " not valid TOML: Expected ']' at the end of a table declaration, at the end of the file"),
        ("a = 1\na = 2\n", "2: not valid TOML: Cannot overwrite a value"),
    ],
)
def test_broken_toml_is_told_with_line_and_column(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    (told,) = problems(path)
    assert told.startswith(expected)


def test_a_missing_file_tells_how_to_start(tmp_path: Path) -> None:
    (told,) = problems(tmp_path / "none.toml")
    assert "there is no such file; copy etc/cmscale.toml" in told


def test_a_folder_or_a_binary_file_is_told_as_such(tmp_path: Path) -> None:
    assert problems(tmp_path) == [" the file cannot be read: Is a directory"]
    (tmp_path / "x").write_bytes(b"a = '\xff'")
    assert problems(tmp_path / "x") == [" the file is not UTF-8 text, at byte 5"]


def test_a_configuration_error_is_a_matter_for_a_person(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured):
        config.load(tmp_path / "none.toml")
