"""Real machines of a lab, without Spark: networks that are apart, links with a rate, groups, and nothing left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_here import ONE, TWO, needs_a_lab, two_machines

import penstock
from penstock.cluster.lab import networks
from penstock.cluster.lab.ground import GROUPS_VARIABLE, LabGround
from penstock.cluster.lab.groups import find_groups
from penstock.cluster.lab.owners import Owner
from penstock.cluster.lab.sizes import LabShape, MachineSize
from penstock.cluster.readings import use_between

pytestmark = needs_a_lab()


def namespace() -> str:
    return str(Path("/proc/thread-self/ns/net").readlink())


def groups_with(prefix: str) -> list[Path]:
    groups = find_groups()
    assert groups is not None
    return [found for folder in groups.folders for found in folder.glob(f"{prefix}*")]


def assert_soon(holds, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def ground() -> Iterator[LabGround]:
    before = namespace()
    with two_machines(LabShape(MachineSize(0.25, 300, 20e6), (MachineSize(0.5, 200, 20e6),))) as ground:
        yield ground
    ground.close()  # once more changes nothing
    assert namespace() == before
    assert groups_with(Owner.this_process().prefix) == []


def test_machines_have_their_limits_and_no_way_out(ground):
    folders = [Path(folder) for folder in ground.environment(ONE)[GROUPS_VARIABLE].split(":")]
    assert all(folder.is_dir() for folder in folders)
    readings = ground.readings()
    assert (readings[ONE].cores, readings[TWO].cores) == (0.5, 0.25)
    assert (readings[ONE].memory_limit, readings[TWO].memory_limit) == (200 << 20, 300 << 20)
    for name in (ONE, TWO, ground.driver_host):
        with ground.within(name), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outwards:
            with pytest.raises(OSError, match="unreachable"):
                outwards.connect(("203.0.113.1", 9))
            routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
        assert [line.split()[0] for line in routes.splitlines()] == ["10.77.0.0/24"], routes


def test_the_driver_is_inside_and_can_still_be_steered_from_outside(ground):
    inside = namespace()
    with networks.outside():
        listener = socket.create_server(("127.0.0.1", 0))
        assert namespace() != inside
    assert namespace() == inside
    answers = []
    with listener:
        asked = f"import socket; socket.create_connection({listener.getsockname()!r}, 5)"
        with networks.outside():
            answers.append(subprocess.run([sys.executable, "-c", asked], check=False).returncode)
        answers.append(subprocess.run([sys.executable, "-c", asked], check=False, capture_output=True).returncode)
    assert answers == [0, 1], "reached from outside, and not from inside"


def test_a_link_carries_its_rate_and_the_counters_say_what_it_carried(ground):
    size = 4 << 20
    before = ground.readings()
    with ground.within(TWO):
        server = socket.create_server((TWO, 0))

    def send() -> None:
        with server, server.accept()[0] as there:
            there.sendall(bytes(size))

    thread = threading.Thread(target=send)
    thread.start()
    began = time.monotonic()
    with ground.within(ONE), socket.create_connection(server.getsockname(), 10) as here:
        got = 0
        while block := here.recv(1 << 16):
            got += len(block)
    seconds = time.monotonic() - began
    thread.join()
    assert got == size
    # Never faster than the link, but for what its bucket holds. How much slower depends on what else runs here.
    assert size * 8 / seconds < 20e6 * 1.1
    use = {name: use_between(before[name], reading) for name, reading in ground.readings().items()}
    one, two = use[ONE], use[TWO]
    assert one is not None
    assert two is not None
    assert one.received_per_second * one.seconds == pytest.approx(size, rel=0.05)
    assert two.sent_per_second * two.seconds == pytest.approx(size, rel=0.05)


def test_work_in_a_machine_gets_its_share_of_a_core(ground):
    before = ground.readings()[TWO]
    busy = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"
    join = f"import os\nfor folder in os.environ[{GROUPS_VARIABLE!r}].split(':'):\n"
    join += "    open(folder + '/cgroup.procs', 'w').write(str(os.getpid()))\n"
    script = [sys.executable, "-c", join + busy]
    with ground.within(TWO):
        two = [subprocess.Popen(script, env={**os.environ, **ground.environment(TWO)}) for _ in range(2)]
    assert [process.wait() for process in two] == [0, 0]
    use = use_between(before, ground.readings()[TWO])
    assert use is not None
    assert use.cpu_cores < 0.25 * 1.1, "two that work share what the machine has"
    assert use.throttled > 0


def test_machines_come_and_go(ground):
    ground.leave(TWO)
    assert set(ground.readings()) == {ONE}
    assert groups_with(Owner.this_process().name("2"))
    assert groups_with(Owner.this_process().name("3")) == []
    ground.settle(TWO)
    assert set(ground.readings()) == {ONE, TWO}


OWNER = """
import os, sys, time
from penstock.cluster.lab.ground import LabGround
from penstock.cluster.lab.owners import Owner
from penstock.cluster.lab.sizes import LabShape
from penstock.cluster.processes import GuardedProcess
from pathlib import Path
ground = LabGround(LabShape())
ground.open(1)
ground.settle("10.77.0.2")
join = "for f in $(echo $PENSTOCK_LAB_GROUPS | tr : ' '); do echo $$ > $f/cgroup.procs; done; echo in; exec sleep 300"
with ground.within("10.77.0.2"):
    GuardedProcess(["sh", "-c", join], Path(sys.argv[1]), {**os.environ, **ground.environment("10.77.0.2")}, 1.0)
while "in" not in Path(sys.argv[1]).read_text():
    time.sleep(0.02)
print(Owner.this_process().prefix, ground._sweeper.pid, flush=True)
time.sleep(300)
"""


def lab_of_another_process(tmp_path) -> tuple[subprocess.Popen[str], str, int]:
    environment = os.environ | {"PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "log")], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    prefix, sweeper = owner.stdout.readline().split()
    return owner, prefix, int(sweeper)


def test_nothing_is_left_of_an_owner_that_was_killed(tmp_path):
    owner, prefix, _ = lab_of_another_process(tmp_path)
    with owner:
        assert groups_with(prefix)
        owner.kill()
    assert_soon(lambda: not groups_with(prefix), 30)


def test_what_an_earlier_run_left_is_cleared_and_what_another_uses_is_not(tmp_path):
    owner, prefix, sweeper = lab_of_another_process(tmp_path)
    with owner:
        ground = LabGround(LabShape())
        ground.open(1)
        ground.close()
        assert groups_with(prefix), "its owner still runs"
        os.kill(sweeper, signal.SIGKILL)
        owner.kill()
    ground = LabGround(LabShape())
    ground.open(1)
    ground.close()
    assert_soon(lambda: not groups_with(prefix), 30)


IN_A_USER_NAMESPACE = """
from penstock.cluster.lab.ground import LabGround
from penstock.cluster.lab.sizes import LabShape
ground = LabGround(LabShape.read(sizes="0.5/200m,0.25//10mbit"))
ground.open(2)
try:
    for name in ("10.77.0.2", "10.77.0.3"):
        ground.settle(name)
    print([(one.cores, one.link_bytes_per_second) for one in ground.readings().values()])
finally:
    ground.close()
"""


def test_root_of_a_user_namespace_can_have_a_lab():
    inside = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c"]
    if subprocess.run([*inside, "ip link set lo up"], capture_output=True, check=False).returncode:
        pytest.skip("this system gives no user namespaces")
    script = 'ip link set lo up; exec "$0" -c "$1"'
    source = {"PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    done = subprocess.run(
        [*inside, script, sys.executable, IN_A_USER_NAMESPACE],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | source,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[(0.5, 12500000.0), (0.25, 1250000.0)]"
