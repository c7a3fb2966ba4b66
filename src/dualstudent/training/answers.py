"""What a trained network says about samples."""

import torch
from torch import Tensor, nn

from dualstudent.data.samples import Samples
from dualstudent.randomness import generator_for
from dualstudent.training.evaluation import evaluation_mode

_CHUNK = 250  # as many as an evaluation looks at


def probabilities(network: nn.Module, samples: Samples, perturbed_by: int | None = None) -> Tensor:
    """What the class head says, in evaluation mode.

    Args:
        network: where it is, and to its precision, the samples are brought.
        samples: N of them.
        perturbed_by: a seed for one perturbed view of each; default: the clean samples.

    Returns:
        (N, C) float64 on the CPU.
    """
    weight = next(network.parameters())
    device = weight.device
    samples, answers = samples.to(device), []
    with evaluation_mode(network):
        for start in range(0, len(samples), _CHUNK):
            positions = torch.arange(start, min(start + _CHUNK, len(samples)))
            draw = None
            if perturbed_by is not None:
                draw = generator_for(perturbed_by, "test view", start, device=device)
            (view,) = samples.views(positions, [draw])
            answers.append(
                network(view.to(weight.dtype)).class_logits.cpu().double().softmax(dim=1)
            )
        return torch.cat(answers)
