import json
from pathlib import Path

import pytest

from dualstudent import train
from dualstudent.training.profiling import Profiler
from tests.torture.children import tiny_recipe


@pytest.mark.filterwarnings("ignore:.*Profiler:UserWarning")
@pytest.mark.parametrize("epochs", [1, 6])  # 4 and 24 steps: fewer than it needs, and enough
def test_a_profile_has_a_trace_and_the_dearest_operations(epochs: int, tmp_path: Path) -> None:
    recipe = tiny_recipe("pi", f"schedule.epochs={epochs}")
    run = train(recipe, tmp_path / "run", Profiler(tmp_path / "profile"))
    assert run.result.is_file()
    if epochs == 1:
        assert not (tmp_path / "profile").exists()
        return
    names = {
        event["name"]
        for event in json.loads((tmp_path / "profile/trace.json").read_text())["traceEvents"]
    }
    assert "aten::conv2d" in names
    table = (tmp_path / "profile" / "operations.txt").read_text()
    rows = [line for line in table.splitlines() if "%" in line and "Self CPU %" not in line]
    assert len(rows) == 10
    assert "ProfilerStep" not in table
