"""How many things to do at once."""


def usable_cores() -> int:
    """The cores that are ours: fewer than the machine's where a task set or a quota says so.

    Example:
        >>> usable_cores() >= 1
        True
    """
    from joblib import cpu_count  # knows the quota of a container; here, for it takes long to load

    return int(cpu_count())
