"""What a process does when the one that started it is gone."""

import multiprocessing
import threading
from collections.abc import Callable


def when_parent_ends(act: Callable[[], object]) -> None:
    """Call ``act``, in a thread, once the parent has ended, also if it was killed.

    Does nothing in a process that was not started by :mod:`multiprocessing`.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        act()

    threading.Thread(target=wait, daemon=True).start()
