"""JAVA_MISSING says what was found; fake javas on PATH stand for the real ones."""

from pathlib import Path

import pytest

from penstock.cluster.java import check_java
from penstock.errors import PenstockError


def fake_java(folder: Path, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.fixture(autouse=True)
def no_java(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def missing() -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        check_java()
    assert caught.value.name == "JAVA_MISSING"
    assert all(word in caught.value.hint for word in ("Java 17 or newer", "apt", "dnf", "brew"))
    return caught.value


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.1", "25-ea"])
def test_a_new_enough_java_on_the_path_will_do(tmp_path, version):
    fake_java(tmp_path, says(version))
    check_java()


@pytest.mark.parametrize(("version", "shown"), [("1.8.0_402", "Java 8"), ("11.0.22", "Java 11")])
def test_an_older_java_is_named_with_its_version(tmp_path, version, shown):
    java = fake_java(tmp_path, says(version))
    message = missing().message
    assert shown in message
    assert str(java) in message


def test_no_java_anywhere():
    assert "No java" in missing().message


def test_java_home_wins_over_the_path(tmp_path, monkeypatch):
    fake_java(tmp_path, says("21"))
    fake_java(tmp_path / "home" / "bin", says("11"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert "Java 11" in missing().message


def test_a_java_home_without_java_is_named(tmp_path, monkeypatch):
    fake_java(tmp_path, says("21"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "empty"))
    assert str(tmp_path / "empty") in missing().message


def test_a_java_that_does_not_run(tmp_path):
    fake_java(tmp_path, "echo 'Unable to locate a Java Runtime.' >&2; exit 1")
    assert "does not run" in missing().message
