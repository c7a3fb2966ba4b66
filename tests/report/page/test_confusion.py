from base64 import b64decode
from io import BytesIO

import numpy as np
import torch
from PIL import Image

from dualstudent.report.page.classes import class_table
from dualstudent.report.page.confusion import confusion, heat_map
from tests.support.evidence import evidence_of, verdict_of


def test_cells_and_pairs_are_those_of_the_matrix() -> None:
    names = ("cat", "dog", "emu", "fox")
    verdict = verdict_of(300, names)
    shown = confusion(evidence_of("run", verdict, names, epochs=2))
    assert shown.cells is not None
    counts = [[cell.count for cell in row] for row in shown.cells]
    assert counts == verdict.matrix.tolist()
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
        (-pair.count, names.index(pair.truth), names.index(pair.answer)) for pair in shown.pairs
    ]
    assert found == expected
    assert [pair.total for pair in shown.pairs] == [sum(counts[truth]) for _, truth, _ in expected]


def test_many_classes_are_a_picture_with_a_pixel_a_cell() -> None:
    names = tuple(map(str, range(21)))
    shown = confusion(evidence_of("run", verdict_of(500, names), names, epochs=2))
    assert shown.cells is None
    assert shown.heat_map is not None
    assert len(shown.pairs) == 15

    matrix = torch.tensor([[3, 1, 0], [0, 0, 0], [0, 16, 0]])
    source = heat_map(matrix).removeprefix("data:image/png;base64,")
    with Image.open(BytesIO(b64decode(source))) as image:
        pixels = np.asarray(image)
    assert pixels.shape == (3, 3, 4)
    expected = np.rint(255 * np.sqrt(np.array([[0.75, 0.25, 0], [0, 0, 0], [0, 1, 0]])))
    assert np.array_equal(pixels[..., 3], expected)
    assert tuple(pixels[0, 0, :3]) != tuple(pixels[0, 1, :3]) == tuple(pixels[2, 1, :3])


def test_of_many_classes_the_hardest_come_first() -> None:
    names = tuple(map(str, range(30)))
    table = class_table([evidence_of("run", verdict_of(500, names), names, epochs=2)])
    assert [row.name for row in table.rows] == list(names)
    assert [row.name for row in table.hardest] == list(names[:10])  # as they were made
    assert table.rows[0].stable == [None]
    few = class_table([evidence_of("run", verdict_of(50, names[:3]), names[:3], epochs=2)])
    assert few.hardest == []
