"""Made-up data of runs for the page, as large and as hostile as a test wants."""

import torch

from dualstudent import Normalization, PreparedData, Transforms, load_recipe
from dualstudent.data.samples import ImageSamples
from dualstudent.report.page.evaluation import Evaluation, evaluate
from dualstudent.report.page.run_data import RunData
from dualstudent.training.inference import Predictions

HOSTILE = """<script>alert("1")</script> & '$x"""


def said(samples: int, classes: int, seed: int = 0) -> tuple[Predictions, torch.Tensor]:
    """Predictions of two students to samples, and the truth: often right, often not sure."""
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, classes, generator=draw)
    truth = (logits + 1.5 * torch.randn(samples, classes, generator=draw)).argmax(dim=1)
    p = logits.softmax(dim=1)
    labels = torch.stack([p.argmax(dim=1), truth], dim=1)
    stable = torch.rand(samples, generator=draw) < p.amax(dim=1)
    agree = labels[:, 0] == labels[:, 1]
    moved = torch.rand(samples, generator=draw)
    return Predictions(
        torch.arange(samples), p, stable, stable & agree, agree, labels, moved
    ), truth


def data_of(truth: torch.Tensor, classes: tuple[str, ...], side: int = 8) -> PreparedData:
    draw = torch.Generator().manual_seed(1)
    different = len(truth) if side == 8 else 1  # else 100,000 would not fit into memory
    pixels = torch.randint(256, (different, 3, side, side), generator=draw).to(torch.uint8)
    pixels = pixels.expand(len(truth), -1, -1, -1)
    images = ImageSamples(pixels, Transforms(), Normalization())
    none = torch.empty(0, dtype=torch.int64)
    return PreparedData(classes, images, truth, none, none, images, truth)


def make_evaluation(
    samples: int, classes: tuple[str, ...], side: int = 8, calibrate: bool = False
) -> Evaluation:
    answers, truth = said(samples, len(classes))
    students = ["student1", "student2"]
    return evaluate(answers, data_of(truth, classes, side), "student1", students, calibrate, 18)


def make_run_data(
    name: str, evaluation: Evaluation, classes: tuple[str, ...], epochs: int
) -> RunData:
    accuracy = [50.0 + 50.0 * place / len(classes) for place in range(len(classes))]
    figures = {
        "error": 12.345,
        "top5_error": 1.5 if len(classes) > 5 else None,
        "stable_share": 81.5,
        "stable_accuracy": 97.25,
        "class_accuracy": accuracy,
        "stable_class_accuracy": [None, *accuracy[1:]],
    }
    networks = {"student1": figures, "student2": figures}
    losses = [{"classification": 0.5, HOSTILE: 0.25}] * 2
    metrics = [{"epoch": epoch, "loss": losses, "test": networks} for epoch in range(1, epochs + 1)]
    result = {
        "error": 12.345,
        "headline": ["student1", "student2"],
        "networks": networks,
        "epochs": epochs,
        "seconds": 61.0,
        "versions": {"dualstudent": "0.0.1"},
    }
    recipe = load_recipe("digits", [f'description="{HOSTILE.replace(chr(34), "")}"'])
    return RunData(name, recipe, metrics, result, "test", 50, 950, classes, 2, evaluation)
