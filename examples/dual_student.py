"""Dual Student on one page: two students teach each other on stable samples.

    python examples/dual_student.py

Real MNIST digits, 50 labels, the rest unlabeled. The paper's Algorithm 1 is spelled out here on
the library's public parts; `dualstudent.DualStudent` is the same as a class.
"""

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
    stability,
)

EPOCHS, SEED = 10, 0
LAMBDA_1, LAMBDA_2, XI = 10.0, 100.0, 0.6

torch.manual_seed(SEED)
transforms, scale = Transforms(weak=Transform(translate=2, noise=0.15)), Normalization()
data = prepare(DataSettings(source="mnist-5k", labels=50), SEED, transforms, scale)
batches = BatchLoader(data, BatchSettings(size=128, labeled=32), SEED)
evaluator = Evaluator(data.test, data.test_labels, XI, SEED)

students = [DigitsCNN(), DigitsCNN()]  # different initial states
optimizers = [
    torch.optim.SGD(s.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    for s in students
]

for epoch in range(EPOCHS):
    for step in range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch):
        batch, ramp = batches.batch(step), rampup(epoch, length=5)

        # Each student sees its own view with gradient and the other one without.
        own = [students[0](batch.views[0]), students[1](batch.views[1])]
        with torch.no_grad():
            other = [students[0](batch.views[1]), students[1](batch.views[0])]
            p_own = [prediction.class_logits.softmax(dim=1) for prediction in own]
            p_other = [prediction.class_logits.softmax(dim=1) for prediction in other]
            p_followed = [prediction.consistency_logits.softmax(dim=1) for prediction in own]
            stable = [stability.is_stable(p_own[i], p_other[i], XI) for i in (0, 1)]  # Eq. 3
            moved = [stability.instability(p_followed[i], p_other[i]) for i in (0, 1)]  # Eq. 4

        for i, j in ((0, 1), (1, 0)):
            guided = batch.unlabeled & stability.is_guided(stable[i], stable[j], moved[i], moved[j])
            class_logits, consistency_logits, _ = own[i]
            to_other = losses.mse(consistency_logits, p_own[j])  # Eq. 5
            total = (  # Eq. 7
                losses.classification(class_logits, batch.labels, average_over_batch=False)
                + 0.01 * losses.logit_distance(class_logits, consistency_logits)
                + LAMBDA_1 * ramp * losses.consistency(consistency_logits, p_other[i])  # Eq. 1
                + LAMBDA_2 * ramp * losses.stabilization(to_other, guided)  # Eq. 6
            )
            for group in optimizers[i].param_groups:
                group["lr"] = 0.1 * cosine(step / (EPOCHS * batches.steps_per_epoch))
            optimizers[i].zero_grad()
            torch.autograd.backward(total)
            optimizers[i].step()

    figures = evaluator.evaluate({"one": students[0], "two": students[1]}).networks
    errors = " ".join(f"{each.error:.1f}" for each in figures.values())
    share = figures["one"].stable_share
    print(f"epoch {epoch + 1}: test error {errors} %, {share:.0f} % stable")
