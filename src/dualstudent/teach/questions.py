"""Which images to show next: those that the model asks for, mixed with some that measure it."""

from collections.abc import Iterable

SHARE = 4  # one of so many questions is of the sample


def arrange_questions(
    chosen: Iterable[int], sample: Iterable[int], asked: int, sampled: int, count: int
) -> list[int]:
    """Mix the images of the sample evenly among those that were chosen.

    Args:
        chosen: images to ask for, the most worth first.
        sample: images of the sample that nobody was asked for yet, in random order.
        asked: questions so far.
        sampled: those of them that were of the sample.
        count: questions wanted; fewer if there are not so many images.

    Example:
        >>> arrange_questions([1, 2, 3, 4, 5, 6], [91, 92], asked=0, sampled=0, count=6)
        [1, 91, 2, 3, 4, 92]
    """
    chosen, sample = iter(chosen), iter(sample)
    questions = list[int]()
    while len(questions) < count:
        is_due = SHARE * sampled < asked + len(questions)
        found = next(sample if is_due else chosen, None)
        if found is None:
            found = next(chosen if is_due else sample, None)
            is_due = not is_due
        if found is None:
            break
        sampled += is_due
        questions.append(found)
    return questions
