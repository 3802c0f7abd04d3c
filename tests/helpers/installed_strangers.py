"""The package in tests/strangers as an installed one: its modules on the path, beside the metadata that says what it
registers. Written by hand, as an installer would write it: tests have no network and install nothing."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "strangers"
MODULES = FOLDER / "src"


def write_metadata(site: Path, name: str, version: str, entry_points: Mapping[str, Mapping[str, str]]) -> Path:
    """The .dist-info folder of a package in a folder of packages."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, entries in entry_points.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return info


def install(site: Path) -> None:
    """The metadata of the strangers' package, from its own pyproject.toml, and a link to its modules."""
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    write_metadata(site, project["name"], project["version"], project["entry-points"])
    for package in MODULES.iterdir():
        if package.is_dir() and package.name != "__pycache__":
            (site / package.name).symlink_to(package)


@contextmanager
def installed(site: Path) -> Iterator[Path]:
    """The strangers' package can be imported and is found by name until the block is left."""
    install(site)
    sys.path.insert(0, str(site))
    try:
        yield site
    finally:
        sys.path.remove(str(site))
        for name in [name for name in sys.modules if name.split(".")[0] == "penstock_strangers"]:
            del sys.modules[name]
