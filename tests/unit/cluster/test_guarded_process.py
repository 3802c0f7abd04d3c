"""Guarded processes: nothing that came from them survives, whichever way the owner ends."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

import penstock
from penstock.cluster.processes import GuardedFolder, GuardedProcess, tail

#: A command that scatters: a child in its own group, one in its own session, one that lost its parent, and one that
#: ignores SIGTERM. Each writes its process id.
SCATTER = """
import os, signal, subprocess, sys, time
sleep = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
started = [
    subprocess.Popen(sleep, process_group=0),
    subprocess.Popen(sleep, start_new_session=True),
    subprocess.Popen([sys.executable, "-S", "-c", deaf], stdout=subprocess.PIPE),
]
started[2].stdout.readline()
orphan = subprocess.run(["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True)
print("pids", os.getpid(), *(p.pid for p in started), orphan.stdout.strip(), flush=True)
time.sleep(60)
"""
OWNER = """
import sys, time
from pathlib import Path
from penstock.cluster.processes import GuardedProcess
process = GuardedProcess([sys.executable, "-c", sys.argv[1]], Path(sys.argv[2]), grace=0.3)
print("ready", flush=True)
{ending}
"""


def eventually(condition, seconds: float = 15.0):
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)
    return result


def pids(log: Path) -> list[int]:
    lines = [line.split()[1:] for line in tail(log, 100).splitlines() if line.startswith("pids")]
    return [int(word) for word in lines[0]] if lines else []


def running(processes: list[int]) -> list[int]:
    return [process for process in processes if is_running(process)]


def is_running(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "command.log"


TEMPORARY = """
import os, pathlib, tempfile, time
folder = pathlib.Path(tempfile.gettempdir())
(folder / "left-behind.so").touch()
print("temporary", folder, os.environ["JDK_JAVA_OPTIONS"], flush=True)
time.sleep(60)
"""


def temporary_folder(log: Path) -> Path | None:
    words = [line.split() for line in tail(log, 100).splitlines() if line.startswith("temporary")]
    if not words:
        return None
    assert words[0][-1] == f"-Djava.io.tmpdir={words[0][1]}"
    return Path(words[0][1])


def test_its_temporary_folder_is_its_own_and_goes_with_it(log):
    process = GuardedProcess([sys.executable, "-c", TEMPORARY], log)
    folder = eventually(lambda: temporary_folder(log))
    assert (folder / "left-behind.so").exists()
    assert folder.stat().st_mode & 0o077 == 0
    process.terminate(grace=0.3)
    assert not folder.exists()


def test_its_temporary_folder_goes_also_if_the_guard_is_killed(log):
    process = GuardedProcess([sys.executable, "-c", TEMPORARY], log, grace=0.3)
    folder = eventually(lambda: temporary_folder(log))
    process._guard.kill()
    process._guard.wait()
    assert folder.exists(), "the guard could not remove it"
    process.terminate(0)
    assert not folder.exists()


def test_its_temporary_folder_goes_also_if_the_owner_is_killed(log):
    code = OWNER.format(ending="time.sleep(60)")
    source = str(Path(penstock.__file__).parents[1])
    owner = subprocess.Popen([sys.executable, "-c", code, TEMPORARY, str(log)], env=os.environ | {"PYTHONPATH": source})
    folder = eventually(lambda: temporary_folder(log))
    owner.kill()
    owner.wait()
    eventually(lambda: not folder.exists())


def test_a_guarded_folder_goes_when_it_is_closed_and_when_its_owner_is_killed():
    kept = GuardedFolder()
    assert kept.path is not None
    (kept.path / "left-behind").touch()
    kept.close()
    assert not kept.path.exists()
    code = (
        "import time; from penstock.cluster.processes import GuardedFolder; "
        "print(GuardedFolder().path, flush=True); time.sleep(60)"
    )
    source = str(Path(penstock.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": source}, stdout=subprocess.PIPE, text=True
    ) as owner:
        folder = Path(owner.stdout.readline().strip())
        assert folder.is_dir()
        owner.kill()
    eventually(lambda: not folder.exists())


def test_a_guarded_folder_goes_also_while_somebody_still_writes_to_it():
    kept = GuardedFolder()
    stop = time.monotonic() + 1.0

    def write() -> None:
        number = 0
        while time.monotonic() < stop:
            with contextlib.suppress(OSError):
                (kept.path / f"file-{number}").touch()
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    kept.close()
    writer.join()
    assert not kept.path.exists()


def test_terminate_ends_everything_that_came_from_the_command(log):
    process = GuardedProcess([sys.executable, "-c", SCATTER], log)
    family = eventually(lambda: pids(log))
    assert len(running(family)) == 5
    assert process.alive
    process.terminate(grace=0.3)
    assert not process.alive
    assert running(family) == []
    process.terminate(grace=0.3)


def test_the_command_runs_in_a_session_of_its_own_without_our_standard_input(log):
    script = "import os, sys; print('pids', os.getpid(), os.getsid(0)); print(repr(sys.stdin.read()))"
    process = GuardedProcess([sys.executable, "-c", script], log)
    eventually(lambda: not process.alive)
    command, session = pids(log)
    assert command == session != os.getsid(0)
    assert process.log_tail(1) == "''"
    process.terminate()


def test_what_the_command_leaves_behind_ends_with_it(log):
    process = GuardedProcess(["sh", "-c", "sleep 60 & echo pids $!; exit 3"], log)
    eventually(lambda: not process.alive)
    assert process.exit_code == 3
    assert running(pids(log)) == []
    process.terminate()


def test_a_command_that_cannot_run_is_in_the_log(log):
    process = GuardedProcess(["/no/such/command"], log)
    eventually(lambda: not process.alive)
    assert process.exit_code == 127
    assert "/no/such/command" in process.log_tail()
    process.terminate()


def test_sigterm_to_the_guard_ends_the_command(log):
    process = GuardedProcess([sys.executable, "-c", SCATTER], log, grace=0.3)
    family = eventually(lambda: pids(log))
    process._guard.terminate()
    eventually(lambda: not process.alive)
    assert running(family) == []
    process.terminate()


@pytest.mark.parametrize(
    ("ending", "number"),
    [("", None), ("1 / 0", None), ("time.sleep(60)", signal.SIGTERM), ("time.sleep(60)", signal.SIGKILL)],
    ids=["end", "exception", "SIGTERM", "SIGKILL"],
)
def test_nothing_survives_an_owner_that_does_not_clean_up(log, ending, number):
    environment = os.environ | {"PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    # The owner waits until the command has scattered, then ends in its way.
    waiting = "while b'pids' not in Path(sys.argv[2]).read_bytes(): time.sleep(0.02)\n"
    owner = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", OWNER.format(ending=waiting + ending), SCATTER, str(log)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with owner:
        family = eventually(lambda: pids(log))
        if number:
            owner.send_signal(number)
        owner.wait(20)
    eventually(lambda: running(family) == [])


def test_a_fork_of_the_owner_does_not_keep_the_command_alive(log):
    """A forked child holds the line to the guard open; the guard sees by its parent that the owner is gone."""
    ending = (
        "import os\nwhile b'pids' not in Path(sys.argv[2]).read_bytes(): time.sleep(0.02)\n"
        "if os.fork() == 0: time.sleep(6); os._exit(0)\nos._exit(0)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    command = [sys.executable, "-c", OWNER.format(ending=ending), SCATTER, str(log)]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True, timeout=20)
    eventually(lambda: running(pids(log)) == [], seconds=5)


def test_the_tail_of_a_long_log_is_its_last_lines(log):
    log.write_text("".join(f"line {i}\n" for i in range(50_000)))
    assert tail(log, 2) == "line 49998\nline 49999"
    assert tail(log.with_name("none.log"), 2) == ""
