"""The archive of Spark's classes: where it is, whose it is, and how JVMs are told of it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cluster import class_archive, daemons
from penstock.cluster.java import find_java
from penstock.cluster.local import LocalCluster
from penstock.errors import PenstockError


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive that only its owner can write, in a cache folder with a blank in its name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    file = class_archive.archive_file()
    assert file is not None
    file.parent.mkdir(mode=0o700, parents=True)
    file.touch(mode=0o600)
    return file


def test_every_jvm_of_ours_is_told_of_the_archive(archive: Path, tmp_path: Path) -> None:
    option = f'"-XX:SharedArchiveFile={archive}"'
    assert class_archive.java_options().startswith(option)
    assert LocalCluster(1, 1, 1).java_options()["spark.driver.extraJavaOptions"].startswith(option)
    assert option in daemons.java_options(tmp_path)
    assert option in daemons.daemon_environment({}, tmp_path, "127.0.0.2")["SPARK_DAEMON_JAVA_OPTS"]


def test_java_takes_the_options_of_the_archive(archive: Path) -> None:
    """Java maps it at the address that it was made for. Elsewhere Java would correct every address in it: each JVM has
    a copy of 130 MB then."""
    java, _ = find_java()
    assert java is not None
    command = [java, *shlex.split(class_archive.java_options()), "-XX:+PrintFlagsFinal", "-version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(r"\bArchiveRelocationMode\s+= 0\b", told.stdout)


def test_the_heap_of_a_daemon_begins_small(tmp_path: Path) -> None:
    """On a machine of 16 GB it would begin with all that the daemon may have, and fill with garbage before anything is
    collected."""
    options = daemons.daemon_environment({}, tmp_path, "127.0.0.2")["SPARK_DAEMON_JAVA_OPTS"]
    assert "-Xms32m" in options.split()


@pytest.mark.parametrize(
    "word", ["-Da=/plain", "-Da=/my cache", "-Da=/home/o'brien", '-Da=/a "b"', "-Da=/a\\b", "-Da=/a\tb"]
)
def test_a_path_may_have_blanks_and_quotes(word: str) -> None:
    """Spark's launcher refuses to start with an apostrophe that is not closed. It cuts words as a shell does."""
    assert shlex.split(f"-Xa {class_archive.quoted(word)} -Xb") == ["-Xa", word, "-Xb"]


def test_without_an_archive_nothing_is_said_of_one(archive: Path) -> None:
    archive.unlink()
    assert class_archive.java_options() == ""


@pytest.mark.parametrize("loose", ["file", "folder"])
def test_an_archive_that_others_can_write_is_not_used(archive: Path, loose: str) -> None:
    (archive if loose == "file" else archive.parent).chmod(0o777)
    assert class_archive.java_options() == ""


def test_another_java_has_another_archive(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    assert class_archive.archive_file() != archive
    assert class_archive.java_options() == ""


def test_without_a_home_there_is_no_archive() -> None:
    assert class_archive.archive_file({}) is None


def test_a_new_archive_takes_the_place_of_the_old_ones(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [archive.with_name(f"classes-{n}.jsa") for n in range(4)]
    for age, other in enumerate(others):
        other.touch()
        os.utime(other, (age, age))
    monkeypatch.setattr(class_archive, "TRAINING", "zipfile")  # a module with a command line of its own, which fails
    with pytest.raises(PenstockError, match="NO_CLASS_ARCHIVE"):
        class_archive.make_archive()
    assert set(archive.parent.iterdir()) == {archive, *others[-2:]}, "what worked before is kept"
    monkeypatch.setattr(
        class_archive, "_training", lambda part: [sys.executable, "-c", f"open({str(part)!r}, 'w').write('new')"]
    )
    assert class_archive.make_archive() == archive
    assert archive.read_text() == "new"
    assert archive.stat().st_mode & 0o777 == 0o600


def test_what_a_training_left_that_was_cut_off_is_deleted(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its JVM sees its end and writes an archive, when nobody waits for it any more."""
    old, new = archive.with_suffix(".17.part"), archive.with_suffix(".18.part")
    for part in (old, new):
        part.touch()
    os.utime(old, (1, 1))
    monkeypatch.setattr(class_archive, "TRAINING", "zipfile")
    with pytest.raises(PenstockError, match="NO_CLASS_ARCHIVE"):
        class_archive.make_archive()
    assert set(archive.parent.iterdir()) == {archive, new}, "another process may be writing the new one"


def test_somebody_else_may_delete_old_archives_at_the_same_time(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = archive.with_name("classes-gone.jsa")
    gone.symlink_to(archive.with_name("nowhere"))  # it is listed, and is not there when it is looked at
    monkeypatch.setattr(class_archive, "TRAINING", "zipfile")
    with pytest.raises(PenstockError, match="NO_CLASS_ARCHIVE"):
        class_archive.make_archive()


def test_the_training_takes_no_arguments_of_the_users_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stand behind ours, so Java's options in them would take the place of those that write the archive."""
    from penstock.engine.spark import class_training

    seen: dict[str, str] = {}

    def session(_: str) -> None:
        seen.update(os.environ)
        raise InterruptedError

    monkeypatch.setattr(
        os, "environ", {**os.environ, "PYSPARK_SUBMIT_ARGS": "--driver-java-options -Xss2m pyspark-shell"}
    )
    monkeypatch.setattr(class_training, "_session", session)
    with pytest.raises(InterruptedError):
        class_training.main("archive")
    assert seen["SPARK_CONF_DIR"].endswith("none")
    assert "PYSPARK_SUBMIT_ARGS" not in seen
