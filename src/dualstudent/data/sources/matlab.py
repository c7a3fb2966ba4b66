"""Reads arrays of numbers from MATLAB 5 files.

SciPy's reader trusts the types that a file names: another one there ends the whole program.
The format: https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf
"""

import os
import struct
import zlib
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_MAGIC, _HEADER = b"MATLAB 5.0 MAT-file", 128
_MATRIX, _COMPRESSED = 14, 15
_COMPLEX = 8  # a flag
# Numbers of types and of classes of arrays; small numbers are stored as a smaller type.
_TYPES = dict(zip((1, 2, 3, 4, 5, 6, 7, 9, 12, 13), "bBhHiIfdqQ", strict=True))
_CLASSES = dict(zip(range(6, 16), "dfbBhHiIqQ", strict=True))
_MOST_GROWTH = 100  # by unpacking; photos become twice as large
_SMALL = 1 << 20  # bytes that anything may grow to


def read_arrays(path: Path, names: Collection[str]) -> dict[str, NDArray[np.generic]]:
    """Read the arrays of real numbers with these names in a file; others are left out.

    Raises:
        ValueError, struct.error, zlib.error: if the file is damaged, or something else.
    """
    found = dict[str, NDArray[np.generic]]()
    with path.open("rb") as file:
        header = file.read(_HEADER)
        if not header.startswith(_MAGIC):
            raise ValueError(f"does not begin with {_MAGIC.decode()!r}")
        if header[126:] != b"IM":
            raise ValueError("is cut off, or has another order of bytes")
        while tag := file.read(8):
            kind, size = struct.unpack("<II", tag)
            if size > os.fstat(file.fileno()).st_size - file.tell():
                raise ValueError("is cut off")
            content = memoryview(file.read(size))
            if kind == _COMPRESSED:
                ((kind, content),) = islice(_split(_unpack(content)), 1)
            if kind == _MATRIX:
                found |= _read_array(content, names)
    return found


def _unpack(content: memoryview) -> memoryview:
    unpacking = zlib.decompressobj()
    unpacked = unpacking.decompress(content, _MOST_GROWTH * len(content) + _SMALL)
    if not unpacking.eof:
        raise ValueError(f"is cut off, or unpacks to more than {len(unpacked):,} bytes")
    return memoryview(unpacked)


def _split(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield type and content of each element."""
    place = 0
    while place < len(content):
        kind, size = struct.unpack_from("<II", content, place)
        begin, end = place + 8, place + 8 + size + -size % 8
        if kind >> 16:  # at most four bytes, which stand in the place of the size
            kind, size = kind & 0xFFFF, kind >> 16
            begin, end = place + 4, place + 8
        if begin + size > min(end, len(content)):
            raise ValueError("is cut off")
        yield kind, content[begin : begin + size]
        place = end


def _read_array(content: memoryview, names: Collection[str]) -> dict[str, NDArray[np.generic]]:
    """Return the array under its name; nothing if it is not asked for, or not of numbers."""
    (_, flags), (_, sizes), (_, letters), *rest = islice(_split(content), 4)
    name = bytes(letters).decode("latin-1")
    if name not in names or not rest:  # also so that memory does not grow with their number
        return {}
    if len(flags) < 2 or flags[0] not in _CLASSES or flags[1] & _COMPLEX:
        return {}
    ((kind, numbers),) = rest
    if kind not in _TYPES:
        raise ValueError(f"holds numbers of an unknown type {kind}")
    stored = np.frombuffer(numbers, f"<{_TYPES[kind]}")
    array = stored.astype(_CLASSES[flags[0]], copy=False)
    shape = np.frombuffer(sizes, "<i").tolist()
    return {name: array.reshape(shape, order="F")}
