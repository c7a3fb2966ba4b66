"""Arrays are those that SciPy writes; what SciPy's own reader does not survive is refused."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from dualstudent.data.sources.matlab import read_arrays
from tests.support.published_formats import mat

TYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")


def write(folder: Path, content: bytes) -> Path:
    path = folder / "a.mat"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("kind", TYPES)
def test_numbers_come_back_as_they_were_written(
    kind: str, compressed: bool, tmp_path: Path
) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(kind)
    given = {"x": values, "one": values[:1, :1, 0], "a_long_name_of_a_variable": values[0]}
    path = write(tmp_path, mat(compressed, text="word", z=[1j], other=[1], **given))
    found = read_arrays(path, {"text", "z", *given})
    assert found.keys() == given.keys()
    for name, array in given.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


def test_a_type_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """Its number is an index to SciPy, which reads behind the end of a table."""
    content = bytearray(mat(compressed=False, x=np.arange(100.0)))
    place = content.index(struct.pack("<II", 9, 800))
    content[place] = 99
    with pytest.raises(ValueError, match="unknown type 99"):
        read_arrays(write(tmp_path, bytes(content)), {"x"})


def test_little_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    packed = zlib.compress(bytes(50_000_000))
    content = mat(x=1)[:128] + struct.pack("<II", 15, len(packed)) + packed
    with pytest.raises(ValueError, match="unpacks to more than"):
        read_arrays(write(tmp_path, bytes(content)), {"x"})
