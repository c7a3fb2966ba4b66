"""Mean Teacher on one page: a student follows the average of its own past weights.

    python examples/mean_teacher.py

Real MNIST digits, 50 labels, the rest unlabeled; the counterpart of `dual_student.py`.
`dualstudent.MeanTeacher` is the same as a class.
"""

import copy

import torch

from dualstudent import (
    BatchLoader,
    BatchSettings,
    DataSettings,
    DigitsCNN,
    Evaluator,
    Normalization,
    Transform,
    Transforms,
    cosine,
    losses,
    prepare,
    rampup,
)

EPOCHS, SEED = 10, 0
LAMBDA, DECAY = 100.0, 0.99

torch.manual_seed(SEED)
transforms, scale = Transforms(weak=Transform(translate=2, noise=0.15)), Normalization()
data = prepare(DataSettings(source="mnist-5k", labels=50), SEED, transforms, scale)
batches = BatchLoader(data, BatchSettings(size=128, labeled=32), SEED)
evaluator = Evaluator(data.test, data.test_labels, threshold=0.8, seed=SEED)

student = DigitsCNN()
teacher = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.SGD(
    student.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4
)

for epoch in range(EPOCHS):
    for step in range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch):
        batch, ramp = batches.batch(step), rampup(epoch, length=5)
        class_logits, consistency_logits, _ = student(batch.views[0])
        with torch.no_grad():
            target = teacher(batch.views[1]).class_logits.softmax(dim=1)
        total = (
            losses.classification(class_logits, batch.labels, average_over_batch=False)
            + 0.01 * losses.logit_distance(class_logits, consistency_logits)
            + LAMBDA * ramp * losses.consistency(consistency_logits, target)  # Eq. 1
        )
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * cosine(step / (EPOCHS * batches.steps_per_epoch))
        optimizer.zero_grad()
        torch.autograd.backward(total)
        optimizer.step()

        decay = min(1 - 1 / (step + 2), DECAY)  # a plain mean at first
        with torch.no_grad():  # Eq. 2
            for average, current in zip(teacher.parameters(), student.parameters(), strict=True):
                average.lerp_(current, 1 - decay)

    figures = evaluator.evaluate({"student": student, "teacher": teacher}).networks
    errors = ", ".join(f"{name} {each.error:.1f} %" for name, each in figures.items())
    print(f"epoch {epoch + 1}: test error {errors}")
