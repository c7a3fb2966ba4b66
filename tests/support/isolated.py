"""Programs in a process that lacks some packages."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BLOCK = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None  # importing it is an ImportError from here on
"""


def run_without(blocked: list[str], program: str, cwd: Path) -> str:
    """What a Python program prints in a process of its own that cannot import some packages."""
    finished = subprocess.run(
        [sys.executable, "-c", BLOCK.format(blocked=blocked) + program],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def json_without(blocked: list[str], program: str, cwd: Path) -> Any:
    return json.loads(run_without(blocked, program, cwd))
