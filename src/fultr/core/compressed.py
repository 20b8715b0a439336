"""Text files, plain or compressed: mapped for reading, replaced atomically when written."""

from __future__ import annotations

import bz2
import gzip
import lzma
import mmap
import os
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import zstandard

from fultr.core.errors import FultrError
from fultr.core.files import cache_folder, written_whole

SUFFIXES = ("", ".gz", ".xz", ".bz2", ".zst")
_BLOCK_BYTES = 1 << 20
_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\x00": ".xz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}


def map_text(path: Path) -> mmap.mmap:
    """Map a file into memory; a compressed one is first unpacked into an unnamed file in the cache folder.

    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"some text"), file.flush()
    ...     map_text(Path(file.name))[:]
    b'some text'
    """
    suffix = path.suffix if path.suffix in SUFFIXES else ""
    try:
        with path.open("rb") as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            if regular and not suffix:
                start = file.read(8)
                file.seek(0)
                suffix = next((found for magic, found in _MAGIC.items() if start.startswith(magic)), "")
            if regular and not suffix:
                return _map(file, path)
            with _nameless() as unpacked:
                for block in unpack(file, suffix):
                    unpacked.write(block)
                unpacked.flush()
                return _map(unpacked, path)
    except (EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError, gzip.BadGzipFile, ValueError) as error:
        raise FultrError(
            f"{path}: expected a complete {suffix} file, found it damaged or truncated: {error}"
        ) from error
    except OSError as error:
        reason = error.strerror or f"damaged or truncated: {error}"
        raise FultrError(f"{path}: cannot be read: {reason}") from error


def unpack(file: IO[bytes], suffix: str) -> Iterator[bytes]:
    """The contents of an open file that is compressed as its suffix says, block by block."""
    if suffix == ".zst":
        yield from _unpack_zst(file)
        return
    openers: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
    stream = openers[suffix](file) if suffix else file
    while block := stream.read(_BLOCK_BYTES):
        yield block


def _unpack_zst(file: IO[bytes]) -> Iterator[bytes]:
    """All frames of a .zst file; the library's own reader mistakes a truncated file for a complete one."""
    frame, fresh = zstandard.ZstdDecompressor().decompressobj(), True
    while block := file.read(_BLOCK_BYTES // 4):
        while block:
            if frame.eof:
                frame, fresh = zstandard.ZstdDecompressor().decompressobj(), True
            yield frame.decompress(block)
            fresh = False
            block = frame.unused_data if frame.eof else b""
    if not frame.eof and not fresh:
        raise EOFError("the last frame is incomplete")


def _nameless() -> IO[bytes]:
    """A temporary file that disappears when closed, in the cache folder if that is writable."""
    folder = cache_folder()
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return tempfile.TemporaryFile(dir=folder)
        except OSError:
            pass
    return tempfile.TemporaryFile()


def _map(file: IO[bytes], path: Path) -> mmap.mmap:
    if os.fstat(file.fileno()).st_size == 0:
        raise FultrError(f"{path}: expected documents, found an empty file")
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@contextmanager
def replacing(path: Path) -> Iterator[Any]:
    """A binary file, compressed according to its suffix, that replaces `path` if all goes well."""
    with (
        written_whole(path) as temporary,
        temporary.open("wb") as raw,
        closing(_compressed(raw, path.suffix)) as file,
    ):
        yield file


class _Plain:
    def __init__(self, raw: IO[bytes]) -> None:
        self.write = raw.write

    def close(self) -> None:
        """Leave the file underneath open, as the compressing ones do."""


def _compressed(raw: IO[bytes], suffix: str) -> Any:
    match suffix:
        case ".gz":
            return gzip.GzipFile("", "wb", 6, raw, mtime=0)
        case ".xz":
            return lzma.LZMAFile(raw, "wb", preset=3)
        case ".bz2":
            return bz2.BZ2File(raw, "wb")
        case ".zst":
            return zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(raw, closefd=False)
        case _:
            return _Plain(raw)
