import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["dual_student", "mean_teacher"])
def test_the_examples_learn(name: str) -> None:
    source = (Path(__file__).parents[1] / "examples" / f"{name}.py").read_text()
    shorter = source.replace("EPOCHS, SEED = 10, 0", "EPOCHS, SEED = 2, 0")
    finished = subprocess.run(
        [sys.executable, "-c", shorter], capture_output=True, text=True, check=True
    )
    last = finished.stdout.splitlines()[-1]
    assert last.startswith("epoch 2: test error")
    errors = [float(word) for word in last.split()[4:7] if word[0].isdigit()]
    assert min(errors) < 80  # chance is 90
