"""``python -m tests.fuzz``: mutated files for every reader, guided by the lines that they reach.

An input that reaches a new line of the reader becomes a seed of others. Inputs that break a
reader are kept in a folder beside the table. Readers that are in the table already, with nothing
that broke them, are not read again, so that a run that was interrupted goes on.
"""

import argparse
import csv
import hashlib
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from tests.fuzz.mutation import mutate
from tests.fuzz.readers import READERS, Reader
from tests.fuzz.trial import WatchedDeeds, limited_memory, read_once

ALL_TRACED, TRACED = 5_000, 10  # the first inputs are traced, and one in so many of the others
COLUMNS = ("reader", "inputs", "seeds found", "lines reached", "lines", "slowest s", "broke it")


def main() -> int:
    """Return 1 if an input broke a reader."""
    parser = argparse.ArgumentParser(description="Give mutated files to every reader.")
    parser.add_argument("table", type=Path, help="CSV file to write")
    parser.add_argument("--inputs", type=int, default=86_000, help="of each fast reader")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of each reader")
    parser.add_argument("--only", default="", help="one reader")
    parser.add_argument("--corpus", type=Path, help="folder of inputs that atheris has found")
    options = parser.parse_args()
    broken, done = 0, read_done(options.table)
    options.table.parent.mkdir(parents=True, exist_ok=True)
    with options.table.open("w", newline="") as file, tempfile.TemporaryDirectory() as folder:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerows([COLUMNS, *done.values()])
        file.flush()
        deeds = WatchedDeeds(Path(folder))
        for reader in READERS:
            if options.only in ("", reader.name) and reader.name not in done:
                place = Path(folder) / reader.name
                place.mkdir()
                seeds = [*reader.seeds(), *read_corpus(options.corpus, reader)]
                inputs = round(options.inputs * reader.share)
                row = fuzz(reader, seeds, inputs, options.seconds, place, options.table, deeds)
                broken += row[-1]
                rows.writerow(row)
                file.flush()
                print(*(f"{k}: {v}," for k, v in zip(COLUMNS, row, strict=True)), flush=True)
    return int(broken > 0)


def read_done(table: Path) -> dict[str, list[str]]:
    """The rows of readers that nothing broke."""
    if not table.is_file():
        return {}
    with table.open(newline="") as file:
        return {row[0]: row for row in csv.reader(file) if row[-1] == "0"}


def read_corpus(corpus: Path | None, reader: Reader) -> list[bytes]:
    """The inputs that atheris has kept for a reader."""
    if corpus is None:
        return []
    return [path.read_bytes() for path in sorted((corpus / reader.name.strip("-")).glob("*"))]


def fuzz(
    reader: Reader,
    seeds: list[bytes],
    inputs: int,
    seconds: float,
    folder: Path,
    table: Path,
    deeds: WatchedDeeds,
) -> tuple[str, int, int, int, int, str, int]:
    """Return the line of the table."""
    draw, lines = random.Random(reader.name), LineTrace(reader.modules)
    slowest, broke = 0.0, set[str]()
    good, begun = len(seeds), time.monotonic()
    tried = 0
    with limited_memory():
        while tried < inputs and time.monotonic() - begun < seconds:
            # The good ones first; some of the others are mutated inside their archive only.
            inside = seeds[tried] if tried < good else mutate(seeds, draw)
            packed = reader.pack(inside)
            content = packed if draw.random() < 0.8 else mutate([packed], draw)
            known, work = len(lines.reached), partial(read_once, reader, content, folder)
            is_traced = tried < ALL_TRACED or tried % TRACED == 0
            try:
                slowest = max(slowest, lines.run(work) if is_traced else work())
                if deeds.found:
                    raise AssertionError(f"did {deeds.found}")
            except Exception as error:
                if _describe(error) not in broke:
                    broke.add(_describe(error))
                    _keep(table, reader, content, error)
                deeds.found.clear()  # also what was kept
            tried += 1
            if len(lines.reached) > known and tried > good:
                seeds.append(inside)
    found = len(seeds) - good
    return (
        *(reader.name, tried, found, len(lines.reached), len(lines.all)),
        *(f"{slowest:.2f}", len(broke)),
    )


def _describe(error: Exception) -> str:
    """Kind and place of an error, by which two of them are told apart."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
    return f"{type(error).__name__} at {place}"


def _keep(table: Path, reader: Reader, content: bytes, error: Exception) -> None:
    folder = table.with_suffix("") / reader.name.strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(content).hexdigest()[:12]
    path.write_bytes(content)
    print(f"{reader.name}: {_describe(error)}: {error!r} for {path}", file=sys.stderr, flush=True)


class LineTrace:
    """Notes which lines of some modules have run.

    Attributes:
        all: (file, line) of all statements inside functions.
        reached: those that have run.
    """

    def __init__(self, modules: Sequence[ModuleType]) -> None:
        self._files = {str(module.__file__) for module in modules}
        self.all = {place for module in modules for place in _list_lines(module)}
        self.reached: set[tuple[str, int]] = set()

    def run(self, work: Callable[[], float]) -> float:
        """Do some work, traced."""
        sys.settrace(self._enter)
        try:
            return work()
        finally:
            sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._note if frame.f_code.co_filename in self._files else None

    def _note(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.reached.add((frame.f_code.co_filename, frame.f_lineno))
        return self._note


def _list_lines(module: ModuleType) -> set[tuple[str, int]]:
    path = str(module.__file__)
    whole = compile(Path(path).read_text("utf-8"), path, "exec")
    inner, found = [each for each in whole.co_consts if isinstance(each, CodeType)], set()
    for code in inner:
        inner += [each for each in code.co_consts if isinstance(each, CodeType)]
        if code.co_flags & 0x2:  # a function; the lines of classes run when they are imported
            lines = {line for *_, line in code.co_lines() if line}
            found |= {(path, line) for line in lines - {code.co_firstlineno}}
    return found


if __name__ == "__main__":
    sys.exit(main())
