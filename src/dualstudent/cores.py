"""How many things to do at once."""


def usable_cores() -> int:
    """The cores that are ours: fewer than the machine's in a container, a job or a task set.

    Example:
        >>> usable_cores() >= 1
        True
    """
    from joblib import cpu_count  # here, for it takes long to load

    return int(cpu_count())
