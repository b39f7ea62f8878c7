"""Read and write files safely: locks, atomic writes, links, pipes, crashes.

A run folder may come from another person. Nothing is written through a link in it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from orgthink.util.errors import UserError

LOCK = ".lock"
"""Lock file of a folder. It is never replaced or removed: a lock on a removed file does not exclude other writers."""

MOST = 1 << 26
"""Largest size of a file that is read whole, such as config.json, in bytes."""

LONGEST_LINE = 1 << 30
"""Longest line that is read, in bytes: a million sampled tokens take 40 MB."""

_HELD: dict[Path, int] = {}
"""Folders that this process has locked, by absolute path, with the descriptors of their lock files."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")


def require_folder_name(name: str) -> None:
    """ValueError for a name that is not a plain folder name."""
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} names a folder: at most 100 letters, digits and any of _ . + -")


class Busy(UserError):
    """Another process writes the folder."""


def descriptors() -> int:
    """Files and connections that this process may have open at once."""
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] % (1 << 31)  # -1 is infinite


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, so that other processes do not write to it. The lock ends with the process.

    Busy if another process holds it, UserError if the file system has no locks, or for a link in a locked folder.
    """
    import fcntl

    require_unmoved(folder)
    with _opened(folder / LOCK, "a+b", os.O_NOFOLLOW) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(
                f"{folder} is being written by another process: wait until that ends, or choose another folder"
            ) from None
        except OSError as error:
            why = f"{folder} is on a file system without locks ({error.strerror})"
            raise UserError(f"{why}: choose a folder on a local disk, or copy the run there") from error
        place = Path(os.path.abspath(folder))
        _HELD[place] = file.fileno()
        try:
            yield
        finally:
            _HELD.pop(place, None)


def require_unmoved(folder: Path) -> None:
    """UserError if a folder that this process has locked was moved, or if a link leads out of it. Call it before
    writing to a path."""
    place, link = Path(os.path.abspath(folder)), None
    for above in (place, *place.parents):
        if above in _HELD:
            if _identity(above / LOCK) != _identity(_HELD[above]):
                why = "was moved or removed while this process wrote it"
                raise UserError(f"{above} {why}: continue with --resume at its new place")
            if link is not None:
                raise UserError(f"{link} is a link: a run writes to its own folder only")
        link = above if above.is_symlink() else link


def _identity(file: Path | int) -> tuple[int, int] | None:
    """Device and inode; `None` without such a file."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def open_to_read(file: Path) -> BinaryIO:
    """Open a file for reading. UserError for a pipe or a device, which may block."""
    return _opened(file, "rb")


def require_file_to_read(file: Path) -> None:
    """Check a file that a library opens. UserError for a pipe or a device, OSError if it cannot be opened."""
    open_to_read(file).close()


def open_to_append(file: Path) -> BinaryIO:
    """Open a file for unbuffered appending; create it if it is missing. UserError for a link, a pipe or a device, and
    in a locked folder that was moved."""
    require_unmoved(file.parent)
    return _opened(file, "ab", os.O_NOFOLLOW)


def read_whole(file: Path, most: int = MOST) -> bytes:
    """The content of a file of at most `most` bytes. UserError if it is larger or not a file."""
    with open_to_read(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        content = b"" if size > most else stream.read(min(max(size, MOST), most) + 1)
    if max(size, len(content)) > most:
        raise UserError(f"{file} has more than {most / 2**20:.3g} MiB")
    return content


def write_whole(file: Path, content: bytes) -> None:
    """Write a file atomically, by renaming a temporary file. A link is replaced.

    UserError for a pipe or a device, and in a locked folder that was moved.
    """
    require_unmoved(file.parent)
    with suppress(OSError):  # without a file there
        _require_file(file, os.stat(file))
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")  # a known name could be a link
    try:
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
        sync_folder(file.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(file)) from error


def append(file: BinaryIO, content: bytes) -> None:
    """Write all of the content to the disk, or nothing."""
    size = os.fstat(file.fileno()).st_size
    left = memoryview(content)
    try:
        while left:
            left = left[file.write(left) :]
        os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), size)
        raise


def made(folder: Path) -> Path:
    """Create a folder and its parents. Returns its path without `..`. UserError behind a link in a locked folder."""
    folder = folder.resolve() if ".." in folder.parts else folder
    require_unmoved(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, so that a rename survives a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not supported by some network file systems
            raise
    finally:
        os.close(handle)


def _opened(file: Path, mode: str, flags: int = 0) -> BinaryIO:
    """Open without waiting for the other end of a pipe. UserError for a pipe, a device or, with O_NOFOLLOW, a link."""

    def opener(path: str, own: int) -> int:
        try:
            handle = os.open(path, own | flags | os.O_NONBLOCK, 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise UserError(f"{path} is a link or a pipe, not a file: put a file there, or remove it") from None
            raise
        found = os.fstat(handle)
        try:
            _require_file(path, found)
        except UserError:
            os.close(handle)
            raise
        return handle

    return open(file, mode, buffering=-1 if mode == "rb" else 0, opener=opener)  # type: ignore[return-value]


def _require_file(path: Path | str, found: os.stat_result) -> None:
    """UserError for a pipe or a device. The system refuses folders."""
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise UserError(f"{path} is a pipe or a device, not a file: choose another file")


def whole_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, from 1, without an incomplete last line of a killed writer.

    No lines if the file is missing. UserError for a line above `LONGEST_LINE`.
    """
    try:
        stream = open_to_read(file)
    except FileNotFoundError:
        return
    with stream:
        number = 0
        while (raw := stream.readline(LONGEST_LINE + 1)).endswith(b"\n"):
            yield (number := number + 1), raw
        if len(raw) > LONGEST_LINE:
            raise UserError(f"{file}, line {number + 1}: longer than {LONGEST_LINE >> 20} MiB")


def cut_torn_line(file: BinaryIO) -> None:
    """Remove an incomplete last line of a killed writer, before others are appended."""
    file.truncate(sum(len(raw) for _, raw in whole_lines(Path(file.name))))


def sha256(file: Path) -> str:
    """Digest of the bytes of a file. UserError for a pipe or a device."""
    with open_to_read(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


SUMS = "SHA256SUMS"
"""File with the digests of the files of its folder, as `sha256sum` writes and checks it."""

_SUM = re.compile(r"([0-9a-f]{64}|[0-9A-F]{64}) [ *](?:\./)?(.+?)\r?")
"""A line of it: digest and name, as other programs may write it, too."""


def write_sums(folder: Path) -> None:
    """Write the digests of all files of a folder and of its subfolders, next to the files."""
    for parent, names in [(Path(parent), sorted(names)) for parent, _, names in os.walk(folder) if names]:
        (parent / SUMS).write_text("".join([f"{sha256(parent / name)}  {name}\n" for name in names if name != SUMS]))


def require_intact(folder: Path) -> None:
    """UserError for a file that is not as it was when its digest was written. Folders without digests are not read."""
    for parent in (Path(parent) for parent, _, names in os.walk(folder) if SUMS in names):
        for line in filter(str.strip, read_whole(parent / SUMS).decode(errors="replace").split("\n")):
            digest, name = found.groups() if (found := _SUM.fullmatch(line)) else ("", line[66:])
            inside = {"/", ".."}.isdisjoint(Path(name).parts) and os.path.isfile(
                parent / name
            )  # also of a name that is too long
            if not inside or digest.lower() != sha256(parent / name):
                raise UserError(
                    f"{parent / name} is damaged: it differs from its digest in {SUMS}: get it again, or, if you "
                    f"changed it yourself, remove {SUMS}"
                )
