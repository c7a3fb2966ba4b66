"""Docstrings as the reference needs them: examples as code, Sphinx roles as links."""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":\w+:`~?([\w.]+)`")


class Docstrings(griffe.Extension):
    """Rewrites the docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = obj.docstring.value.replace("Example:\n", "Examples:\n")
            obj.docstring.value = _ROLE.sub(_link, text)


def _link(found: re.Match[str]) -> str:
    name = found[1].rpartition(".")[2]
    return f'<autoref optional identifier="{found[1]}"><code>{name}</code></autoref>'
