"""Where PostgreSQL's programs are, and as whom they may run."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any


def find_binaries() -> Path | None:
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    complete = (folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists())
    return next(complete, None)


def server_user() -> str | None:
    """PostgreSQL refuses to run as root; None if we are not."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)


def as_user(user: str | None) -> dict[str, Any]:
    """For `subprocess`: run as this user; as we are if there is none."""
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}
