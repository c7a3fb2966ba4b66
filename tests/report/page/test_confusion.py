from base64 import b64decode
from io import BytesIO

import numpy as np
import torch
from PIL import Image

from dualstudent.report.page.classes import build_class_table
from dualstudent.report.page.confusion import build_confusion, draw_heat_map
from tests.support.run_data import make_evaluation, make_run_data


def test_cells_and_pairs_are_those_of_the_matrix() -> None:
    names = ("cat", "dog", "emu", "fox")
    evaluation = make_evaluation(300, names)
    shown = build_confusion(make_run_data("run", evaluation, names, epochs=2))
    assert shown.cells is not None
    counts = [[cell.count for cell in row] for row in shown.cells]
    assert counts == evaluation.matrix.tolist()
    for row in shown.cells:
        assert abs(sum(cell.share for cell in row) - 1) < 1e-9
    expected = sorted(
        (
            (-counts[truth][answer], truth, answer)
            for truth in range(4)
            for answer in range(4)
            if truth != answer
        ),
    )[:5]
    found = [
        (-pair.count, names.index(pair.truth), names.index(pair.predicted)) for pair in shown.pairs
    ]
    assert found == expected
    assert [pair.total for pair in shown.pairs] == [sum(counts[truth]) for _, truth, _ in expected]


def test_many_classes_are_a_picture_with_a_pixel_a_cell() -> None:
    names = tuple(map(str, range(21)))
    shown = build_confusion(make_run_data("run", make_evaluation(500, names), names, epochs=2))
    assert shown.cells is None
    assert shown.heat_map is not None
    assert len(shown.pairs) == 15

    matrix = torch.tensor([[3, 1, 0], [0, 0, 0], [0, 16, 0]])
    source = draw_heat_map(matrix).removeprefix("data:image/png;base64,")
    with Image.open(BytesIO(b64decode(source))) as image:
        pixels = np.asarray(image)
    assert pixels.shape == (3, 3, 4)
    expected = np.rint(255 * np.sqrt(np.array([[0.75, 0.25, 0], [0, 0, 0], [0, 1, 0]])))
    assert np.array_equal(pixels[..., 3], expected)
    assert tuple(pixels[0, 0, :3]) != tuple(pixels[0, 1, :3]) == tuple(pixels[2, 1, :3])


def test_of_many_classes_the_hardest_come_first() -> None:
    names = tuple(map(str, range(30)))
    table = build_class_table([make_run_data("run", make_evaluation(500, names), names, epochs=2)])
    assert [row.name for row in table.rows] == list(names)
    assert [row.name for row in table.hardest] == list(names[:10])  # as they were made
    assert table.rows[0].stable_accuracy == [None]
    few = build_class_table(
        [make_run_data("run", make_evaluation(50, names[:3]), names[:3], epochs=2)]
    )
    assert few.hardest == []
