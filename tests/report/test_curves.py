from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dualstudent.report.curves import draw_curves


def record(epoch: int, **errors: float) -> dict[str, Any]:
    figures = {name: {"error": error, "stable_share": error} for name, error in errors.items()}
    return {"epoch": epoch, "test": figures}


def test_a_single_evaluation_can_be_seen(tmp_path: Path) -> None:
    """Axes and legend are the same in both pictures, so any difference is what was measured."""
    draw_curves({"": [record(1, a=20, b=80)]}, tmp_path / "one.png")
    draw_curves({"": [record(1, a=80, b=20)]}, tmp_path / "other.png")
    one, other = (np.asarray(Image.open(tmp_path / f"{name}.png")) for name in ("one", "other"))
    half = one.shape[1] // 2
    for side in (slice(None, half), slice(half, None)):
        assert (one[:, side] != other[:, side]).any()


def test_a_title_may_hold_anything(tmp_path: Path) -> None:
    draw_curves({"": [record(1, a=20)]}, tmp_path / "x.png", "runs/$\\frac$\n\udcff<b>")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_a_network_of_a_later_stage_gets_a_shorter_line(tmp_path: Path) -> None:
    draw_curves({"": [record(1, a=20), record(2, a=20, b=30)]}, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
