"""`dualstudent teach` as a process, and its page."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType


class Teaching:
    """The program on a folder, in a process of its own.

    Args:
        folder: of images.
        options: of the program.

    Attributes:
        address: of the page.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        environment = os.environ | {"DUALSTUDENT_CACHE": str(folder.parent / "cache")}
        words = ["teach", str(folder), "--port", "0", "--no-browser", *options]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dualstudent", *words],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert self.process.stdout is not None
        found = (re.match(r"open (http\S+)$", line) for line in self.process.stdout)
        self.address = next(match[1] for match in found if match)
        self._rest = threading.Thread(target=self.process.stdout.read)
        self._rest.start()

    def kill(self) -> None:
        """End it as a power failure would."""
        self.process.send_signal(signal.SIGKILL)
        self._end()

    def __enter__(self) -> "Teaching":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self._end()

    def _end(self) -> None:
        self.process.wait()
        self._rest.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
