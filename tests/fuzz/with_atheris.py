"""``python -m tests.fuzz.with_atheris CORPUS``: inputs found by atheris, guided by coverage.

atheris is no dependency of the project: install it first (``pip install atheris``). Of every reader
it keeps the inputs that reach something new in ``CORPUS``; ``python -m tests.fuzz --corpus CORPUS``
goes on from these and counts lines.
"""

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> int:
    """Return 1 if an input broke a reader; it is in the corpus then, as crash-…"""
    parser = argparse.ArgumentParser(description="Fuzz every reader with atheris.")
    parser.add_argument("corpus", type=Path, help="folder of the inputs, to begin from and to keep")
    parser.add_argument("--inputs", type=int, default=100_000, help="of each reader")
    parser.add_argument("--seconds", type=int, default=0, help="of each reader; 0: no limit")
    parser.add_argument("--only", default="", help="one reader, in this process")
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed; only our own mutations are used")
        return 0
    if options.only:
        fuzz(options.only, options.corpus, options.inputs, options.seconds)  # does not return
    from tests.fuzz.readers import READERS  # noqa: PLC0415  instrumented in the other processes

    command = [sys.executable, "-m", "tests.fuzz.with_atheris", options.corpus]
    command += [f"--inputs={options.inputs}", f"--seconds={options.seconds}"]
    codes = [
        subprocess.run([*command, f"--only={reader.name}"], check=False).returncode
        for reader in READERS
    ]
    return int(any(codes))


def fuzz(name: str, corpus: Path, inputs: int, seconds: int) -> None:
    """Fuzz one reader; ends the process."""
    import atheris  # noqa: PLC0415

    with atheris.instrument_imports(include=["dualstudent"], enable_loader_override=False):
        from tests.fuzz.readers import READERS  # noqa: PLC0415
        from tests.fuzz.trial import MOST_BYTES, MOST_SECONDS, read_once  # noqa: PLC0415
    (reader,) = (each for each in READERS if each.name == name)
    place = corpus / name.strip("-")
    place.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(reader.seeds()):
        (place / f"seed-{number}").write_bytes(content)
    with tempfile.TemporaryDirectory() as folder:
        options = [
            *(f"-runs={inputs}", f"-max_total_time={seconds}", f"-timeout={MOST_SECONDS:.0f}"),
            *(f"-rss_limit_mb={2 * MOST_BYTES >> 20}", f"-artifact_prefix={place}/"),
        ]
        atheris.Setup(
            [sys.argv[0], *options, str(place)],
            lambda content: read_once(reader, reader.pack(content), Path(folder)),
        )
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
