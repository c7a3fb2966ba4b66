"""How many things to do at once."""

import os

PROCESSES = "DUALSTUDENT_PROCESSES"  # of the environment: how many work on the same run


def usable_cores() -> int:
    """The cores that are ours: fewer than the machine's where a task set or a quota says so.

    Processes that share the batches of a run share the cores, too.

    Example:
        >>> usable_cores() >= 1
        True
    """
    from joblib import cpu_count  # knows the quota of a container; here, for it takes long to load

    return max(1, int(cpu_count()) // int(os.environ.get(PROCESSES, "1")))
