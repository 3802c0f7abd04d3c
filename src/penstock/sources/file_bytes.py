"""The bytes of one file as its readers get them, whole or in part, and whether getting them failed.

A network that breaks in the middle of a file is no fault of its rows, but pyarrow raises OSError for that as well as
for a block that cannot be decompressed. So what fails while bytes are fetched is remembered here, below everything that
interprets them.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs as pafs

from penstock.errors import PenstockError


@dataclass(frozen=True)
class Part:
    """What is read of a file: bytes [start, stop) of text, which begin and end where rows do, or row groups [start,
    stop) of Parquet. Without a stop, to the end. Of compressed text there is only the whole."""

    start: int = 0
    stop: int | None = None


WHOLE = Part()
#: Text is read in blocks of this size.
BLOCK_BYTES = 4 << 20
#: Text may begin with it, and it is no part of the first value.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class FileBytes:
    """One file, opened as often as its reader likes."""

    def __init__(self, fs: pafs.FileSystem, path: str) -> None:
        self.fs = fs
        self.path = path
        #: What went wrong while bytes were fetched.
        self.failure: Exception | None = None

    def stream(self, part: Part = WHOLE) -> pa.NativeFile:
        """The text, decompressed by the file's name."""
        codec = compression_of(self.path)
        raw = self._opened(part)
        return pa.CompressedInputStream(raw, codec) if codec else raw

    def random_access(self) -> pa.NativeFile:
        return self._opened(WHOLE)

    def lines_before(self, part: Part) -> int:
        """How many lines of text there are before a part: for messages, since it reads them all."""
        with self.stream(Part(0, part.start)) as stream:
            return sum(block.count(b"\n") for block in iter(lambda: stream.read(BLOCK_BYTES), b""))

    def unreadable(self) -> PenstockError:
        """What to raise where fetching bytes has failed."""
        return PenstockError(
            "FILE_UNREADABLE",
            f'the bytes of "{self.path}" could not be fetched: {self.failure}.',
            "Is the file still there, and can every machine reach it? Started again with the same --state, the "
            "topology reads it anew. If a file was deleted on purpose, put one without rows in its place: an empty "
            "one, or for Parquet one that has only the columns.",
        )

    def _opened(self, part: Part) -> pa.NativeFile:
        try:
            file = self.fs.open_input_file(self.path)
            if part.start:
                file.seek(part.start)
        except (OSError, MemoryError, pa.ArrowException) as error:
            self.failure = error
            raise
        return pa.PythonFile(_Watched(self, file, part.stop), mode="r")


def compression_of(path: str) -> str | None:
    """As pyarrow tells it, by the end of the file's name."""
    try:
        return str(pa.Codec.detect(path).name)
    except (TypeError, ValueError):  # no suffix that it knows
        return None


class _Watched(io.RawIOBase):
    """The bytes of a part as a Python file that pyarrow reads from."""

    def __init__(self, of: FileBytes, file: pa.NativeFile, stop: int | None) -> None:
        super().__init__()
        self._of = of
        self._file = file
        self._stop = stop

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def size(self) -> int:
        return int(self._file.size())

    def read(self, size: int = -1) -> bytes:
        try:
            if self._stop is not None:
                left = max(self._stop - self._file.tell(), 0)
                size = left if size < 0 else min(size, left)
            data: bytes = self._file.read() if size < 0 else self._file.read(size)
        except (OSError, MemoryError, pa.ArrowException) as error:
            self._of.failure = error
            raise
        return data

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
