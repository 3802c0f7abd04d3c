"""Is there a Java that Spark can run on? Asked before anything starts, so that the answer is one clear sentence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from penstock.errors import PenstockError
from penstock.logs import LOGGER

OLDEST = 17
HINT = (
    f"Spark needs Java {OLDEST} or newer: install it (Debian/Ubuntu: sudo apt install openjdk-17-jre-headless; "
    "Fedora: sudo dnf install java-21-openjdk-headless; macOS: brew install openjdk@17), then put java on PATH or "
    "set JAVA_HOME."
)


def check_java() -> None:
    """Raise JAVA_MISSING unless the java that Spark would use is there and new enough."""
    java, origin = find_java()
    if java is None:
        raise PenstockError("JAVA_MISSING", f"No java was found: {origin}.", HINT)
    version = _major_version(java)
    if version is None:
        raise PenstockError("JAVA_MISSING", f"{java} ({origin}) does not run.", HINT)
    if version < OLDEST:
        raise PenstockError("JAVA_MISSING", f"{java} ({origin}) is Java {version}, which is too old.", HINT)


def find_java() -> tuple[str | None, str]:
    """The java that Spark's scripts take (JAVA_HOME's before PATH's), and in words where it was looked for."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return (str(java) if os.access(java, os.X_OK) else None), f"JAVA_HOME is {home}"
    return shutil.which("java"), "JAVA_HOME is not set, so PATH was searched"


def _major_version(java: str) -> int | None:
    """17 for "17.0.15", 8 for "1.8.0_402"; None if it does not run, like the placeholder java of macOS."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        LOGGER.warning("%s -version: %s: %s", java, type(problem).__name__, problem)
        return None
    if answer.returncode:
        LOGGER.warning("%s -version ended with %d: %s", java, answer.returncode, answer.stderr.strip()[:300])
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found and answer.returncode == 0 else None
