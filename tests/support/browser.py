"""The type of the fixture ``opened``."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

Opened = Callable[..., "Page"]
"""Name of a page, width and settings of the window → the page in a browser."""
