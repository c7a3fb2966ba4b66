import os
import subprocess
import sys
from pathlib import Path

import pytest

from dualstudent import load_recipe
from dualstudent.parallel import count_cores
from dualstudent.training import distributed as processes


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_process_that_may_use_one_core_counts_one() -> None:
    program = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]);"
        "from dualstudent.parallel import count_cores; print(count_cores())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "1\n"


def test_processes_of_a_run_share_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda: 64)
    monkeypatch.setattr(processes, "_start_follower", lambda *_: subprocess.Popen(["true"]))
    for number, cores in ((1, 64), (8, 8), (100, 1)):
        with processes.followers(load_recipe("demo", [f"device.processes={number}"]), tmp_path):
            assert count_cores() == cores
    assert count_cores() == 64
