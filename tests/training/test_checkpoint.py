from pathlib import Path

import torch

from dualstudent.training.checkpoint import write_tensors


def test_tensors_have_the_rights_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    write_tensors(tmp_path / "file", {"a": torch.zeros(2)}, {})
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "other").stat().st_mode
