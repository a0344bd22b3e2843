"""What machines do at each boot: the shipped script, against a metadata service over HTTP.

Slurm's and systemd's commands are stand-ins that write down what they are asked. Such a `systemd-run` runs what it is
given, as a process of the test.
"""

from __future__ import annotations

import base64
import gzip
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmscale.adapters.aws import AwsPool
from cmscale.adapters.aws.names import NO_ORDER_YET, _digest, folded, marks, names, node_of, order_tags
from cmscale.adapters.aws.pool import NODE_TAG
from cmscale.adapters.aws.userdata import LONGEST, user_data
from cmscale.lab.processes import wait_until
from cmscale.model import NodeName
from cmscale.ports import Misconfigured
from cmscale.shell.shipped import share_dir
from tests.adapters.imds import Imds, imds
from tests.adapters.test_aws import REGION, Connect, Ec2, connect, ec2, operation, pool, served

__all__ = ["connect", "ec2", "pool", "served"]
"""Fixtures."""

SCRIPT = share_dir("etc") / "aws" / "node.sh"
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]

SYSTEMD_RUN = """\
#!/bin/sh
while :; do
    case $1 in --unit=*) unit=${1#--unit=} ;; --*) ;; *) break ;; esac
    shift
done
echo "$unit: $*" | sed "s,$STAND_INS/,," >>"$WORLD/ran"
"$@" >>"$WORLD/console" 2>&1 &
echo $! >"$WORLD/units/$unit"
"""
SYSTEMCTL = """\
#!/bin/sh
echo "systemctl $*" >>"$WORLD/ran"
case $1 in
is-active) kill -0 "$(cat "$WORLD/units/$2" 2>/dev/null)" 2>/dev/null && echo active || { echo inactive; exit 3; } ;;
start) [ ! -e "$WORLD/broken-$2" ] ;;
disable) exit 1 ;;  # there is no such unit
esac
"""
SCONTROL = """\
#!/bin/sh
[ ! -e "$WORLD/silent" ] || { rm "$WORLD/silent"; exit 1; }
echo "scontrol $*" >>"$WORLD/ran"
"""
STAND_INS = {
    "systemd-run": SYSTEMD_RUN,
    "systemctl": SYSTEMCTL,
    "scontrol": SCONTROL,
    "hostnamectl": '#!/bin/sh\necho "hostnamectl $*" >>"$WORLD/ran"\n',
    "slurmd": "#!/bin/sh\nexec sleep 60\n",
    "sinfo": '#!/bin/sh\ncat "$WORLD/reason"\n',
}

RUN_INSTANCES = {
    "instance-id": "i-0123456789abcdef0",
    "ami-launch-index": "2",
    "instance-life-cycle": "on-demand",
    "tags/instance/cm-scale:cluster": "c1",
    "tags/instance/cm-scale:node": "t4-[3-6]",
}


@dataclass
class Box:
    """A machine that cloud-init boots; its disk outlives its boots."""

    root: Path
    metadata: Imds

    def boot(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """cloud-init runs the copies that were left for each boot; at the first boot, the user data."""
        left = [*self.per_boot.glob("*")]
        return self.run(left[0] if left else self.root / "part-001", **environment)

    def run(self, script: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [script, *words], env=self.environment | environment, capture_output=True, text=True, timeout=30
        )

    @property
    def per_boot(self) -> Path:
        return self.root / "per-boot"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "STAND_INS": str(self.root / "bin"),
            "WORLD": str(self.root),
            "IMDS": self.metadata.url,
            "PER_BOOT": str(self.per_boot),
            "PAUSE_S": "0.05",
            "EVERY_S": "0.05",
        }

    @property
    def ran(self) -> list[str]:
        with suppress(FileNotFoundError):
            asks = ("systemctl is-active", "systemctl disable")
            lines = (self.root / "ran").read_text().splitlines()
            return [line for line in lines if not line.startswith(asks)]
        return []

    def console_says(self, text: str) -> bool:
        with suppress(FileNotFoundError):
            return text in (self.root / "console").read_text()
        return False

    def power_off(self) -> None:
        for unit in (self.root / "units").iterdir():
            with suppress(ProcessLookupError):
                os.kill(int(unit.read_text()), signal.SIGKILL)
            unit.unlink()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    for folder in ("bin", "units"):
        (tmp_path / folder).mkdir()
    for name, text in STAND_INS.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    first = tmp_path / "part-001"
    first.write_bytes(user_data(SCRIPT, {"CONF_SERVER": "head:6817"}))
    first.chmod(0o700)
    (tmp_path / "reason").write_text("none\n")
    with imds(RUN_INSTANCES) as metadata:
        machine = Box(tmp_path, metadata)
        try:
            yield machine
        finally:
            machine.power_off()


# --- which node it is ------------------------------------------------------------------------------------------------


def test_a_machine_takes_the_name_at_its_launch_index_and_starts_its_slurmd(box: Box) -> None:
    done = box.boot()
    assert (done.returncode, done.stderr) == (0, "cm-scale: t4-5: slurmd is started\n")
    assert box.ran == [
        "hostnamectl set-hostname t4-5",
        "systemctl start munge",
        "cm-scale-slurmd: slurmd -D -N t4-5 --conf-server head:6817",
    ]


def test_the_metadata_service_is_asked_with_its_token_alone(box: Box) -> None:
    assert box.boot().returncode == 0
    assert box.metadata.refused == 0
    assert box.metadata.tokens


def test_without_a_place_for_its_configuration_slurmd_uses_what_is_in_the_image(box: Box) -> None:
    (box.root / "part-001").write_bytes(user_data(SCRIPT, {"CONF_SERVER": ""}))
    assert box.boot().returncode == 0
    assert box.ran[-1] == "cm-scale-slurmd: slurmd -D -N t4-5"


def test_tags_that_come_late_are_waited_for(box: Box) -> None:
    box.metadata.late = {"tags/instance/cm-scale:node": 2, "instance-id": 1}
    assert box.boot().returncode == 0
    assert box.ran[-1].startswith("cm-scale-slurmd: slurmd -D -N t4-5 ")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ami-launch-index": "7"}, "the tag cm-scale:node is t4-[3-6], which has no name at place 7"),
        ({"tags/instance/cm-scale:node": ""}, "the tag cm-scale:node is , which has no name at place 2"),
        (
            {"tags/instance/cm-scale:order-0": "..."},
            "the tags cm-scale:order-N do not say which machine of its fleet i-0123456789abcdef0 is",
        ),
    ],
)
def test_a_machine_that_is_no_node_says_why_on_its_console(box: Box, changes: dict[str, str], told: str) -> None:
    box.metadata.says |= changes
    done = box.boot(TRIES="3")
    assert (done.returncode, done.stderr) == (1, f"cm-scale: {told}; asked 3 times\n")
    assert box.ran == []


def test_a_metadata_service_that_does_not_answer_is_named(box: Box) -> None:
    done = box.boot(TRIES="2", IMDS="http://127.0.0.1:9/latest")
    told = "the metadata service at http://127.0.0.1:9/latest does not tell the tag cm-scale:node"
    assert (done.returncode, done.stderr) == (1, f"cm-scale: {told}; asked 2 times\n")


# --- fleets ----------------------------------------------------------------------------------------------------------


def by_shell(call: str, *words: str, **variables: str) -> str:
    """What a function of the script prints."""
    functions = SCRIPT.read_text().partition("\ncase ${1:-boot} in")[0]
    done = subprocess.run(
        ["sh", "-c", f'{functions}\n{call} "$@"', "node.sh", *words],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


numbered = st.builds(
    lambda prefix, number, width: NodeName(f"{prefix}{number:0{width}d}"),
    st.sampled_from(["t4-", "n", "x1-y", "gpu0rack"]),
    st.integers(0, 1200),
    st.integers(1, 4),
)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.lists(st.one_of(numbered, st.sampled_from([NodeName("login"), NodeName("big-b")])), min_size=1, max_size=30))
def test_a_machine_reads_a_list_of_names_as_we_do(nodes: list[NodeName]) -> None:
    label = folded(nodes)
    assert by_shell("unfold", label).split() == [*names(label)]


MACHINES = [f"i-{number:017x}" for number in range(120)]


def fleet(machines: Sequence[str], length: int = 0) -> dict[str, str]:
    """The tags of machines that EC2 has made as one fleet; `length`: of longer marks, as in a larger one."""
    order = [_digest(machine)[:length] for machine in machines] if length else marks(machines)
    return {NODE_TAG: f"t4-[1-{len(machines)}]", **order_tags(order)}


def in_metadata(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"tags/instance/{key}": value for key, value in tags.items()}


@pytest.mark.parametrize("length", [0, 7])
def test_a_machine_of_a_fleet_is_the_name_at_the_place_of_its_mark(box: Box, length: int) -> None:
    tags = fleet(MACHINES, length)
    box.metadata.says |= in_metadata(tags)
    for machine in (MACHINES[0], MACHINES[51], MACHINES[119]):
        box.metadata.says["instance-id"] = machine
        assert box.boot().returncode == 0
        node = node_of(machine, tags, 2)
        assert node
        assert box.ran[-1] == f"cm-scale-slurmd: slurmd -D -N {node} --conf-server head:6817"
        box.power_off()


def test_a_fleet_whose_order_is_being_written_is_waited_for(box: Box) -> None:
    written = in_metadata(fleet(MACHINES))
    box.metadata.says |= written | in_metadata(NO_ORDER_YET) | {"instance-id": MACHINES[115]}
    assert box.boot(TRIES="2").returncode == 1  # the last part is there, the first one is what it was launched with
    box.metadata.says |= written
    box.metadata.late = {"tags/instance/cm-scale:order-1": 1}
    assert box.boot().returncode == 0
    assert box.ran[-1].startswith("cm-scale-slurmd: slurmd -D -N t4-116 ")


# --- launched for real, but for the metal ----------------------------------------------------------------------------


def metadata_of(instance: Mapping[str, Any]) -> dict[str, str]:
    """What the metadata service of this instance would say."""
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    return in_metadata(tags) | {
        "instance-id": instance["InstanceId"],
        "ami-launch-index": str(instance["AmiLaunchIndex"]),
        "instance-life-cycle": instance.get("InstanceLifecycle", "on-demand"),
    }


@pytest.mark.parametrize(
    "kinds", [("g4dn.xlarge",), ("g4dn.xlarge", "g5.xlarge")], ids=["by RunInstances", "by a fleet"]
)
def test_machines_become_the_nodes_that_we_take_them_for(
    box: Box, connect: Connect, ec2: Ec2, kinds: tuple[str, ...]
) -> None:
    cluster, since = f"nodes{len(kinds)}", time.time()
    pool = AwsPool(kinds, ec2.image, (ec2.subnet,), user_data=SCRIPT, conf_server="head:6817")
    site = connect(pool, cluster=cluster)
    site.start(operation("e1", "e2", "big-b", "e10"))
    amazon: Any = boto3.client("ec2", REGION, endpoint_url=ec2.endpoint)
    asked = ec2.calls("RunInstances", since) or ec2.calls("CreateLaunchTemplate", since)
    (handed,) = [value for key, value in asked[0]["params"].items() if key.endswith("UserData")]
    (box.root / "part-001").write_bytes(base64.b64decode(handed))
    ours = {machine.id: machine.node for machine in site.list()}
    described = amazon.describe_instances(InstanceIds=[*ours])["Reservations"]
    instances = [instance for each in described for instance in each["Instances"]]
    assert len(instances) == 4
    for instance in instances:
        box.metadata.says = metadata_of(instance)
        assert box.boot().returncode == 0
        node = ours[instance["InstanceId"]]
        assert box.ran[-1] == f"cm-scale-slurmd: slurmd -D -N {node} --conf-server head:6817"
        box.power_off()
    amazon.close()


# --- again, and again ------------------------------------------------------------------------------------------------


def test_run_twice_it_changes_nothing(box: Box) -> None:
    box.boot()
    before = {path.name: path.read_text() for path in (box.root / "units").iterdir()}
    again = box.run(box.root / "part-001")
    assert (again.returncode, again.stderr) == (0, "")
    assert {path.name: path.read_text() for path in (box.root / "units").iterdir()} == before
    assert [line for line in box.ran if "slurmd -D" in line] == [
        "cm-scale-slurmd: slurmd -D -N t4-5 --conf-server head:6817"
    ]


def test_a_machine_that_was_powered_off_starts_its_slurmd_at_the_next_boot(box: Box) -> None:
    box.boot()
    first = box.ran
    box.power_off()
    assert box.boot().returncode == 0
    assert box.ran == first * 2
    assert [each.name for each in box.per_boot.iterdir()] == ["cm-scale-node"]


def test_a_machine_that_failed_tries_again_at_its_next_boot(box: Box) -> None:
    (box.root / "broken-munge").touch()
    done = box.boot()
    assert (done.returncode, done.stderr) == (1, "cm-scale: t4-5: munge does not start: is its key in the image?\n")
    (box.root / "broken-munge").unlink()
    assert box.boot().returncode == 0


# --- spot ------------------------------------------------------------------------------------------------------------

ACTION = "spot/instance-action"
DRAINED = "scontrol update nodename=t4-5 state=drain reason=cm-scale: notice by 08:22:00 UTC: spot interruption"


@pytest.fixture
def spot(box: Box) -> Box:
    """A spot machine that has booted."""
    box.metadata.says["instance-life-cycle"] = "spot"
    assert box.boot().returncode == 0
    return box


def test_only_a_spot_machine_watches_for_its_interruption(box: Box) -> None:
    box.boot()
    assert [each.name for each in (box.root / "units").iterdir()] == ["cm-scale-slurmd"]


def test_a_spot_machine_that_is_taken_back_drains_its_node(spot: Box) -> None:
    assert wait_until(lambda: ACTION in spot.metadata.asked, 10)
    assert DRAINED not in spot.ran
    spot.metadata.says[ACTION] = '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}'
    assert wait_until(lambda: DRAINED in spot.ran, 10)
    assert spot.console_says("cm-scale: t4-5: cm-scale: notice by 08:22:00 UTC: spot interruption")


def test_a_slurm_that_is_silent_is_told_again(spot: Box) -> None:
    (spot.root / "silent").touch()
    spot.metadata.says[ACTION] = '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}'
    assert wait_until(lambda: DRAINED in spot.ran, 10)
    assert not (spot.root / "silent").exists()


def test_a_drain_of_ours_is_replaced_and_one_by_a_person_is_left(spot: Box) -> None:
    (spot.root / "reason").write_text("bad fan, ann\n")
    spot.metadata.says[ACTION] = '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}'
    assert wait_until(lambda: spot.console_says("cm-scale: t4-5: is drained already: bad fan, ann"), 10)
    assert DRAINED not in spot.ran
    spot.power_off()
    (spot.root / "reason").write_text("cm-scale: idle for 5 min\n")
    assert spot.boot().returncode == 0
    assert wait_until(lambda: DRAINED in spot.ran, 10)


def test_advice_to_leave_the_machine_is_told_once_and_drains_nothing(spot: Box) -> None:
    spot.metadata.says["events/recommendations/rebalance"] = '{"noticeTime": "2020-10-27T08:22:00Z"}'
    told = 'cm-scale: t4-5: EC2 advises to leave this machine: {"noticeTime": "2020-10-27T08:22:00Z"}'
    assert wait_until(lambda: spot.console_says(told), 10)
    looks = len(spot.metadata.asked)
    assert wait_until(lambda: len(spot.metadata.asked) > looks + 3, 10)
    assert (spot.root / "console").read_text().count(told) == 1
    assert not [line for line in spot.ran if line.startswith("scontrol")]


# --- the script itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_of_a_machine_can_read_the_script(shell: str) -> None:
    assert subprocess.run([shell, "-n", SCRIPT], capture_output=True, text=True).stderr == ""


def test_shellcheck_finds_nothing_in_the_script() -> None:
    assert subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True).stdout == ""


# --- what is handed over ---------------------------------------------------------------------------------------------


def test_words_between_two_signs_are_replaced_and_no_others(tmp_path: Path) -> None:
    script = tmp_path / "own.sh"
    script.write_text("echo @CLUSTER@ @NODES@ @OTHER@ ann@example.org\n")
    assert user_data(script, {"CLUSTER": "c1", "NODES": "t4-[1-2]"}) == b"echo c1 t4-[1-2] @OTHER@ ann@example.org\n"


def test_the_shipped_script_is_handed_over_as_it_is_and_as_short_as_ec2_wants() -> None:
    given = user_data(SCRIPT, {"CONF_SERVER": "head:6817"})
    assert given == SCRIPT.read_bytes().replace(b"@CONF_SERVER@", b"head:6817")
    assert len(given) < LONGEST / 2


def test_a_script_that_is_too_long_is_packed_the_same_each_time(tmp_path: Path) -> None:
    script = tmp_path / "own.sh"
    script.write_text("# a long licence\n" * 2000)
    packed = user_data(script, {})
    assert len(packed) <= LONGEST
    assert gzip.decompress(packed) == script.read_bytes()
    assert packed == user_data(script, {})


def test_a_script_that_is_too_long_even_when_packed_is_refused_with_its_size(tmp_path: Path) -> None:
    script = tmp_path / "own.sh"
    script.write_text(random.Random(1).randbytes(20_000).hex())
    with pytest.raises(
        Misconfigured, match=rf"^user data {script} is 40000 bytes long, 2\d+ packed; EC2 takes 16384 at most$"
    ):
        user_data(script, {})


def test_a_script_that_cannot_be_read_is_named() -> None:
    with pytest.raises(Misconfigured, match=r"the user data cannot be read: .*/no/such/script"):
        user_data(Path("/no/such/script"), {})
