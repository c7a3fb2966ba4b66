"""Every reader of foreign data raises nothing but errors for users, whatever is in the file."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualstudent.teach.journal import COLUMNS
from tests.fuzz.mutation import mutate
from tests.fuzz.readers import READERS, Reader
from tests.fuzz.trial import limited_memory, read_once


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
@pytest.mark.filterwarnings("ignore")
def test_a_good_file_is_not_refused(reader: Reader, tmp_path: Path) -> None:
    """Else mutated ones would all be refused for the same reason."""
    reader.read(reader.pack(reader.seeds()[0]), tmp_path)


HEADER = ",".join(COLUMNS)
FOUND = (
    ("--set", "method.name.name=pi"),
    ("--set", "method={name=[1]}"),
    ("toml", f'extends = "{"a" * 300}"'),
    ("teach", "GET /state/?\udcef\n\n"),
    ("experiment", "rows = " + "9" * 5000),
    ("experiment", "rows = " + "[" * 5000),
    ("journal", f"{HEADER}\n,cat,,class added,ada,,{'9' * 5000},\n"),
    ("journal", f"{HEADER}\n,cat,,class added,ada,,1,{'9' * 30}\n"),
    ("journal", f"{HEADER}\na.png,,test,listed,,,,sample\n"),
)


@pytest.mark.parametrize(("name", "content"), FOUND, ids=lambda text: ascii(text[-30:]))
def test_what_once_broke_a_reader_does_not_any_more(
    name: str, content: str, tmp_path: Path
) -> None:
    (reader,) = (each for each in READERS if each.name == name)
    read_once(reader, content.encode(errors="surrogateescape"), tmp_path)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    noise=st.binary(max_size=200),
    kind=st.sampled_from(["noise", "inside", "archive"]),
)
def test_any_content_is_read_or_refused(
    reader: Reader, tmp_path: Path, seed: int, noise: bytes, kind: str
) -> None:
    draw, seeds = random.Random(seed), reader.seeds()
    content = noise
    if kind == "inside":
        content = reader.pack(mutate([*seeds, noise], draw))
    elif kind == "archive":
        content = mutate([reader.pack(draw.choice(seeds))], draw)
    with limited_memory():
        read_once(reader, content, tmp_path)
