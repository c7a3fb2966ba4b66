"""What the exported network of a run makes of images, before it decides on a class."""

import torch
from torch import Tensor

from dualstudent.training.inference import run_inference
from dualstudent.training.trainer import Trainer


def extract_features(trainer: Trainer, indices: Tensor) -> Tensor:
    """What the exported network makes of clean training samples, before it decides on a class.

    Args:
        trainer: of a trained run, see :func:`dualstudent.load_trained`.
        indices: (n,) int64, of the training samples. All features are held at once: ask for
            thousands, not millions.

    Returns:
        (n, D) on the CPU; samples that cannot be read are missing.
    """
    network = trainer.method.evaluated[trainer.method.exported]
    samples, device = trainer.data.train, trainer.fabric.device
    found = run_inference({"exported": network}, samples, indices, None, device)
    return torch.cat([outputs.clean["exported"].features.cpu() for outputs in found])
