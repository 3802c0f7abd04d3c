"""Files that bundles have staged for a sink: they get their final names when their batch is published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyarrow import fs as pafs

from penstock.channels.catalog import Catalog
from penstock.channels.segments import open_filesystem, sync
from penstock.errors import PenstockError
from penstock.monitor.report import BatchReport


def check_staged(report: BatchReport) -> None:
    """Refuse to publish a batch if the driver cannot see every file that its bundles have staged: the driver is going
    to move these files, and a batch whose files it cannot see must not count as written."""
    for filesystem, staged, _ in _files(report):
        if not _exists(filesystem, staged):
            raise PenstockError(
                "SINK_NOT_SHARED",
                f'a bundle has written {staged}, but the driver of "{report.operator}" cannot see that file.',
                "Driver and executors must share the folder of a Parquet sink: give a path on a file system that all "
                "machines have mounted, or a URI (hdfs:, s3:, gs:). The batch is not published: started again with "
                "the same --state, the topology writes its rows anew.",
            )


def finish_published(operator: str, batch: int, catalog: Catalog, *, durable: bool) -> None:
    """Do what `finish_files` does for a batch that was published before: its files may still be staged, if the disk had
    no room for another name at that moment."""
    for one in catalog.manifests(operator, batch - 1):
        if one.batch == batch:
            finish_files(BatchReport.parse(one.manifest), catalog, durable=durable)


def finish_files(report: BatchReport, catalog: Catalog, *, durable: bool = False) -> None:
    """Give the staged files of a published batch their final names. After a crash this is done again, and changes
    nothing. If the names must be `durable`, a power cut does not take them back: the next start looks at the last two
    batches only.

    The catalog notes first that all of them are there: a file under its final name belongs to others, and if they have
    taken it away it is not lost."""
    files, key = list(_files(report)), f"finished/{report.operator}"
    were_seen = bool(files) and report.batch <= int(catalog.get_meta(key) or -1)
    # A file is looked for first: S3 has no error of its own for one that is not there.
    staged_still = {staged for filesystem, staged, _ in files if _exists(filesystem, staged)}
    for filesystem, staged, final in files:
        if not were_seen and staged not in staged_still and not _exists(filesystem, final):
            raise PenstockError(
                "SINK_FILE_LOST",
                f'rows that batch {report.batch} of "{report.operator}" has written are lost: the file is neither at '
                f"{staged}, where a bundle has staged it, nor at {final}, where it belongs.",
                f"Restore the file to one of the two places. If you can do without its rows, put an empty file at "
                f"{final}, start again, and delete that file then.",
            )
    if files and not were_seen:
        catalog.set_meta(key, str(report.batch))
    for filesystem, staged, final in files:
        if staged in staged_still:
            filesystem.move(staged, final)
    if durable:  # also the names that an attempt before has given
        sync(*{Path(final).parent for filesystem, _, final in files if _is_local(filesystem)})


def _files(report: BatchReport) -> Iterator[tuple[pafs.FileSystem, str, str]]:
    """(file system, staged path, final path) of every file of a batch."""
    for bundle in report.bundles:
        for marked, final in bundle.staged:
            uri, _, staged = marked.partition("|")
            yield open_filesystem(uri)[0] if uri else pafs.LocalFileSystem(), staged, final


def _is_local(filesystem: pafs.FileSystem) -> bool:
    return isinstance(filesystem, pafs.LocalFileSystem)


def _exists(filesystem: pafs.FileSystem, path: str) -> bool:
    return bool(filesystem.get_file_info(path).type != pafs.FileType.NotFound)
