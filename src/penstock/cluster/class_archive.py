"""An archive of Spark's classes, which Java maps at its start instead of reading and checking thousands of them.

Java calls this class data sharing. On two cores a driver is there after 3.4 s instead of 6, with 6 s of processor time
instead of 10.5; masters, workers and executors gain alike. `penstock prepare` makes the archive once, and every JVM
that Penstock starts on this computer uses it if it is there.

Java takes an archive only with the Java, the jars and the class path that it was made with, and goes on without it
otherwise. A folder that is there must not be in that class path, so the daemons have no configuration folder
(daemons.py says where their configuration is instead).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from penstock.cluster.java import find_java
from penstock.cluster.spark_home import spark_home
from penstock.errors import PenstockError
from penstock.logs import LOGGER

#: What makes the archive, in a process of its own: it needs Spark.
TRAINING = "penstock.engine.spark.class_training"
#: Half a minute on two cores that do nothing else.
TRAINING_SECONDS = 600.0
#: Archives of another Java or Spark that are kept, the newest: each has 170 MB.
MOST_OTHERS = 2
#: Nobody wants to read that an archive does not fit: Java then does without it.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
#: Java maps the archive at the address that it was made for, unless something is in the way there. By default (17.0.15)
#: it maps the archive elsewhere and corrects every address in it: each JVM has a copy of 130 MB then. A Java that does
#: not know the option ignores it: Spark starts all its JVMs with -XX:+IgnoreUnrecognizedVMOptions.
_IN_ITS_PLACE = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
#: A word that Spark's launcher takes as it is.
_PLAIN = re.compile(r"""[^\s'"\\]+""")


def archive_file(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where the archive for this Java and this Spark is, or would be; None where there is no place for it."""
    java, _ = find_java()
    home = environment.get("HOME")
    cache = environment.get("XDG_CACHE_HOME") or (home and str(Path(home) / ".cache"))
    if java is None or not cache:
        return None
    parts = []
    for path in (Path(java).resolve(), spark_home() / "jars"):
        seen = path.stat()
        parts.append(f"{path} {seen.st_mtime_ns} {seen.st_size}")
    return Path(cache) / "penstock" / f"classes-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.jsa"


def java_options() -> str:
    """The options that have a JVM of Spark use the archive; empty if there is none."""
    try:
        file = archive_file()
        if file is None or not _is_ours(file):
            return ""
    except OSError as problem:
        LOGGER.info("the archive of classes cannot be used: %s", problem)
        return ""
    return f"{quoted(f'-XX:SharedArchiveFile={file}')} {_IN_ITS_PLACE} {_QUIET}"


def make_archive() -> Path:
    """Make the archive anew; half a minute on idle cores."""
    file = archive_file()
    if file is None:
        raise PenstockError(
            "NO_CLASS_ARCHIVE",
            "Penstock knows no folder for the archive of Spark's classes.",
            "Set HOME or XDG_CACHE_HOME.",
        )
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_room(file)
    part = file.with_suffix(f".{os.getpid()}.part")
    try:
        answer = subprocess.run(_training(part), capture_output=True, text=True, timeout=TRAINING_SECONDS, check=False)
        if answer.returncode != 0 or not part.exists():
            raise PenstockError(
                "NO_CLASS_ARCHIVE",
                f"Java made no archive of Spark's classes: {(answer.stderr or answer.stdout).strip()[-500:]}",
                "Penstock runs without it; every start takes some seconds longer.",
            )
        part.chmod(0o600)
        part.replace(file)
    except subprocess.TimeoutExpired:
        raise PenstockError(
            "NO_CLASS_ARCHIVE",
            f"Java made no archive of Spark's classes within {TRAINING_SECONDS:g} s.",
            "Try again when the computer has less to do. Penstock runs without the archive, and starts more slowly.",
        ) from None
    finally:
        part.unlink(missing_ok=True)
    return file


def _make_room(file: Path) -> None:
    """Delete old archives, and what was left of a training that was cut off: its JVM still writes an archive then."""
    ages = {}
    for other in (set(file.parent.glob("classes-*.jsa")) - {file}) | set(file.parent.glob("classes-*.part")):
        with suppress(FileNotFoundError):  # another process makes room as well
            ages[other] = other.stat().st_mtime
    others = sorted((one for one in ages if one.suffix == ".jsa"), key=lambda one: ages[one])
    before = time.time() - 2 * TRAINING_SECONDS
    cut_off = [one for one in ages if one.suffix == ".part" and ages[one] < before]
    for one in (*others[:-MOST_OTHERS], *cut_off):
        one.unlink(missing_ok=True)


def _training(part: Path) -> list[str]:
    return [sys.executable, "-m", TRAINING, str(part)]


def quoted(word: str) -> str:
    """Spark's launcher cuts options at blanks, and understands quotes and backslashes: a home may be /home/o'brien."""
    return word if _PLAIN.fullmatch(word) else '"' + re.sub(r'(["\\])', r"\\\1", word) + '"'


def _is_ours(file: Path) -> bool:
    """Whether only its owner can write the archive: whoever can write it can have every JVM run anything."""
    try:
        seen = [file.stat(), file.parent.stat()]
    except FileNotFoundError:
        return False
    if all(one.st_uid == os.getuid() and not one.st_mode & (stat.S_IWGRP | stat.S_IWOTH) for one in seen):
        return True
    LOGGER.warning("%s is not used: others than its owner can write it", file)
    return False
