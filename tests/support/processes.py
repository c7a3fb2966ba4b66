"""A run in a process of its own that sends itself a signal: no test has to wait for the moment."""

import signal
import subprocess
import sys
from pathlib import Path

from dualstudent import Recipe
from dualstudent.recipes.reading import to_toml

PROGRAM = """
import os, sys

if __name__ == "__main__":  # worker processes need nothing of this
    from dualstudent import Callback, load_recipe, train
    from dualstudent.cli import run_command

    class Signals(Callback):
        def on_step(self, step):
            if step == int(sys.argv[4]):
                number = int(sys.argv[3])
                os.kill(os.getpid(), number) if number == 9 else os.killpg(0, number)

    run_command(lambda: train(load_recipe(sys.argv[1]), sys.argv[2], Signals()))
"""


def stopped_by(
    number: signal.Signals, recipe: Recipe, folder: Path, step: int = 3
) -> tuple[int, str]:
    """Train into ``folder``; after ``step`` steps the signal goes to all processes of the run.

    SIGKILL goes to the main process alone. Returns when all processes have ended: each of them
    holds the end of a pipe.

    Returns:
        Exit code and messages.
    """
    program, toml = folder.parent / "program.py", folder.parent / "recipe.toml"
    program.write_text(PROGRAM)
    toml.write_text(to_toml(recipe))
    finished = subprocess.run(
        [sys.executable, program, toml, folder, str(int(number)), str(step)],
        capture_output=True,
        text=True,
        timeout=100,
        start_new_session=True,
        check=False,
    )
    return finished.returncode, finished.stderr


def dead_process() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid
