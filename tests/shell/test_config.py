from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from cmscale.model import Limits, PoolName, Shape, SiteKind, SiteName
from cmscale.ports import Misconfigured
from cmscale.shell import config
from cmscale.shell.config import Config, ConfigError, Mode

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
    *keys(config.ClusterTable, "cluster"),
    *keys(config.SlurmSettings, "slurm"),
    *keys(config.LimitsTable, "limits"),
    *keys(config.SiteTable, "sites.aws-us-east-1"),
    *keys(config.PoolTable, "pools.t4"),
    *keys(config.AwsSettings, "pools.t4.aws"),
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
            assert config.duration(written) == default if isinstance(written, str) else written == default
        case None:
            assert not written
        case tuple():
            assert (written or []) == list(default)  # an empty hostlist is an empty text
        case Path():
            assert written == str(default)
        case config.Mode() | config.Market():
            assert written == default.value
        case _:
            assert written == default


# --- what is read ----------------------------------------------------------------------------------------------------


def test_a_small_file_gets_the_defaults(write: Write) -> None:
    loaded = config.load(write())
    assert loaded.policies == ("serve_queue", "keep_warm", "release_idle")
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


def test_tables_of_policies_are_kept_as_written(write: Write) -> None:
    assert config.load(write(more='[policy.mine]\nx = "5m"\n')).policy_tables == {"mine": {"x": "5m"}}


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("10m", 600), ("1.5h", 5400), ("2d", 172800), ("250ms", 0.25), ("0s", 0)]
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert config.duration(text) == seconds


def test_the_environment_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMSCALE_CONFIG", "/somewhere/c.toml")
    assert config.default_path() == Path("/somewhere/c.toml")
    monkeypatch.delenv("CMSCALE_CONFIG")
    assert config.default_path() == Path("/etc/cm-scale/cmscale.toml")


def test_a_configuration_cannot_be_changed(write: Write) -> None:
    loaded: Config = config.load(write())
    with pytest.raises(TypeError):
        loaded.pools["other"] = loaded.pools[PoolName("t4")]  # type: ignore[index]


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
        ("cpus = 4", "cpus = true", "11: pools.t4.cpus: expected a whole number, got true"),
        ("cpus = 4", 'cpus = "4"', '11: pools.t4.cpus: expected a whole number, got "4"'),
        ("cpus = 4", "", "8: pools.t4.cpus: missing; this key is required"),
        ('site = "east"', 'site = "eats"', '9: pools.t4.site: there is no site "eats"; did you mean "east"?'),
        ('"aws"', '"asw"', '5: sites.east.kind: unknown kind "asw"; did you mean "aws"?'),
        ("[pools.t4.aws]", "[pools.t4.azure]", "8: pools.t4.aws: missing; this key is required"),
        ('["cloud"]', "[]", "13: pools.t4.partitions: expected a list with at least one entry, got []"),
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
        config.hostlist(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a1x,a2x", ["a1x", "a2x"]),
        ("r[1-2]-n[08,10]", ["r1-n08", "r1-n10", "r2-n08", "r2-n10"]),
        ("b[2,1],a1", ["a1", "b1", "b2"]),
    ],
)
def test_hostlists_become_names_in_order(text: str, names: list[str]) -> None:
    assert list(config.hostlist(text)) == names


def test_no_cloud_may_be_called_home(write: Write) -> None:
    told = problems(write({"[sites.east]": "[sites.home]", 'site = "east"': 'site = "home"'}))
    assert told == ['4: sites.home: "home" is where the nodes are that Slurm has by itself; choose another name']


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
