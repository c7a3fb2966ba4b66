"""Programs of the documentation that take long: half a minute of one core each."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.site

DOCS = Path(__file__).parents[2] / "docs"
SHORTER = {"images=1000": "images=300", "epochs=2": "epochs=1", "(3)": "(1)", "seeds=2": "seeds=1"}


@pytest.mark.parametrize("page", ["my-research.md", "clusters.md"])
def test_the_program_of_a_way_in_runs(page: str, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    for long, short in SHORTER.items():
        program = program.replace(long, short)
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
