"""Dual Student: image classifiers from a few labels and many unlabeled images.

The public interface is listed in ``__init__.pyi``; beside it, the modules ``losses`` and
``stability``. Names are imported when first used, so that the command line answers at once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
