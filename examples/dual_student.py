"""Dual Student on one page: two students teach each other on stable samples.

    python examples/dual_student.py

Real MNIST digits, 50 labels, the rest unlabeled. Everything of the paper's Algorithm 1 is
spelled out here on the library's public parts; `dualstudent.DualStudent` is the same as a class.
"""

import torch

from dualstudent import DigitsCNN, Stream, choose_labeled, cosine, losses, rampup, stability
from dualstudent.data.augment import Augmentation, Normalisation, normalised, perturbed
from dualstudent.data.embedded import load_mnist_5k

EPOCHS, SEED = 10, 0
LAMBDA_1, LAMBDA_2, XI = 10.0, 100.0, 0.6

torch.manual_seed(SEED)
train, test = load_mnist_5k("train"), load_mnist_5k("test")
labeled = choose_labeled(train, 50, SEED)
labels = torch.full((len(train),), -1)
labels[labeled] = train.labels[labeled]  # all that is known of the classes
unlabeled = (labels < 0).nonzero().squeeze(1)

labeled_stream = Stream(labeled, 32, SEED, "labeled")
unlabeled_stream = Stream(unlabeled, 96, SEED, "unlabeled", whole_batches=True)
steps_per_epoch = len(unlabeled) // 96
noise, scale = Augmentation(translate=2, noise=0.15), Normalisation()
generator = torch.Generator().manual_seed(SEED)

students = [DigitsCNN(), DigitsCNN()]  # different initial states
optimizers = [
    torch.optim.SGD(s.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    for s in students
]

for step in range(EPOCHS * steps_per_epoch):
    ramp = rampup(step // steps_per_epoch, length=5)
    batch = torch.cat([unlabeled_stream.batch(step), labeled_stream.batch(step)])
    views = [perturbed(train.pixels, batch, noise, scale, generator) for _ in range(2)]

    # Each student sees its own view with gradient and the other one without.
    own = [student(view) for student, view in zip(students, views, strict=True)]
    with torch.no_grad():
        other = [student(view) for student, view in zip(students, reversed(views), strict=True)]
        p_own = [prediction.class_logits.softmax(dim=1) for prediction in own]
        p_other = [prediction.class_logits.softmax(dim=1) for prediction in other]
        p_followed = [prediction.consistency_logits.softmax(dim=1) for prediction in own]
        stable = [stability.is_stable(p_own[i], p_other[i], XI) for i in (0, 1)]  # Eq. 3
        moved = [stability.instability(p_followed[i], p_other[i]) for i in (0, 1)]  # Eq. 4

    for i, j in ((0, 1), (1, 0)):
        guided = stability.is_guided(stable[i], stable[j], moved[i], moved[j])
        guided &= labels[batch] < 0
        distance = losses.mse(own[i].consistency_logits, p_own[j])  # Eq. 5
        total = (  # Eq. 7
            losses.classification(own[i].class_logits, labels[batch], average_over_batch=False)
            + 0.01 * losses.logit_distance(own[i].class_logits, own[i].consistency_logits)
            + LAMBDA_1 * ramp * losses.consistency(own[i].consistency_logits, p_other[i])  # Eq. 1
            + LAMBDA_2 * ramp * losses.stabilization(distance, guided)  # Eq. 6
        )
        for group in optimizers[i].param_groups:
            group["lr"] = 0.1 * cosine(step / (EPOCHS * steps_per_epoch))
        optimizers[i].zero_grad()
        torch.autograd.backward(total)
        optimizers[i].step()

    if (step + 1) % steps_per_epoch == 0:
        with torch.no_grad():
            images = normalised(test.pixels, scale)
            predictions = [s.eval()(images).class_logits.argmax(dim=1) for s in students]
            errors = [100 * (p != test.labels).float().mean().item() for p in predictions]
            for student in students:
                student.train()
        print(
            f"epoch {(step + 1) // steps_per_epoch}: test error {errors[0]:.1f} {errors[1]:.1f} %"
        )
