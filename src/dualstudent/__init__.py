"""Dual Student: image classifiers from a few labels and many unlabeled images.

The public interface is listed in ``__init__.pyi``; beside it, the modules ``losses``,
``mixing`` and ``stability``. Names are imported when first used, so that the command line answers
at once.
"""

import os
import sys

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# Threads of OpenMP that wait for each other keep their cores busy by default. Beside another busy
# process this makes training many times slower, so let them sleep. OpenMP reads this once, when
# torch is loaded; child processes inherit it. Whoever has chosen something else keeps it.
if "torch" not in sys.modules and "GOMP_SPINCOUNT" not in os.environ:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
