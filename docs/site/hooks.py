"""What the documentation site adds to the pages in ``docs/``.

The pages are written to be read in the repository, too, so their links name files of it. Here,
files beside ``docs/`` become pages (``RESULTS.md``, examples) or pictures, the reference is made
from the public interface, and a built page that would load anything from elsewhere is an error.
"""

import ast
import json
import posixpath
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
_BESIDE = ("RESULTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_EXAMPLES = sorted((*ROOT.glob("examples/*.py"), *ROOT.glob("examples/*.ipynb")))
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
# Page of the reference → the modules of the package whose public names are on it.
_REFERENCE = {
    "training": (
        "Training",
        "runs recipes training grid experiments frame progress loggers optimization report signals "
        "errors generators",
    ),
    "data": ("Data", "data batch"),
    "methods": ("Methods and losses", "methods losses stability mixing"),
    "networks": ("Networks and trunks", "networks prediction trunks"),
    "using": ("Using a model", "estimator export labeling"),
}
# Classes that are only used from elsewhere: where they belong with what uses them.
_ELSEWHERE = {"Predictor": "using", "Predictions": "using", "predict": "using"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List all examples in the navigation."""
    for entry in config.nav or []:
        if "Examples" in entry:
            entry["Examples"] = [f"examples/{path.stem}.md" for path in _EXAMPLES]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add files beside ``docs/``, and the reference."""
    for name in _BESIDE:
        files.append(File.generated(config, name, content=(ROOT / name).read_text("utf-8")))
    for picture in sorted(ROOT.glob("results/**/*.png")):
        place = picture.relative_to(ROOT).as_posix()
        files.append(File.generated(config, place, abs_src_path=str(picture)))
    for example in _EXAMPLES:
        place = f"examples/{example.stem}.md"
        files.append(File.generated(config, place, content=_show_example(example)))
    for name, text in _write_reference().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files of the repository lead to their pages."""
    here = page.file.src_uri
    beside = here in _BESIDE
    folder = posixpath.dirname(here)

    def move(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("" if beside else "docs", folder, found[1]))
        place = "index.md" if target == "README.md" else target.removeprefix("docs/")
        if place.startswith("examples/"):
            place = re.sub(r"\.(py|ipynb)$", ".md", place)
        return f"]({posixpath.relpath(place, folder or '.')}{found[2] or ''})"

    return _LINK.sub(move, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse pages and styles that load anything from elsewhere."""
    site = Path(config.site_dir)
    outside = [
        f"{path.relative_to(site)}: {address}"
        for path in sorted(site.rglob("*"))
        for address in _find_loaded(path)
        if re.match(r"(https?:)?//", address)
    ]
    if outside:
        raise PluginError("the site would load from elsewhere: " + "; ".join(outside[:5]))


def _find_loaded(path: Path) -> Iterable[str]:
    if path.suffix == ".css":
        return re.findall(r"url\(['\"]?([^'\")]+)", path.read_text("utf-8"))
    if path.suffix != ".html":
        return ()
    parser = _Loaded()
    parser.feed(path.read_text("utf-8"))
    return parser.addresses


class _Loaded(HTMLParser):
    """Collects the addresses that a page loads when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {"src", "srcset", "poster"} | ({"href"} if tag == "link" else set())
        self.addresses += [value for name, value in attrs if name in names and value]


def _show_example(path: Path) -> str:
    """A program, or a notebook without its outputs, as Markdown."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        return f"# {path.name}\n\n```python\n{text}```\n"
    cells = ((cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"])
    return "\n\n".join(
        source if kind == "markdown" else f"```python\n{source}\n```" for kind, source in cells
    )


def _write_reference() -> dict[str, str]:
    """Page → Markdown with a directive for each public name, module by module."""
    pages = {name: [f"# {title}", ""] for name, (title, _) in _REFERENCE.items()}
    owners = {module: name for name, (_, of) in _REFERENCE.items() for module in of.split()}
    places = {module: place for place, module in enumerate(owners)}
    for module, name in sorted(_list_public_names(), key=lambda pair: places[_find_top(pair[0])]):
        owner = _ELSEWHERE.get(name) or owners[_find_top(module)]
        pages[owner].append(f"::: dualstudent.{module}{'' if module == name else f'.{name}'}")
    listed = [f"- [{title}]({name}.md)" for name, (title, _) in _REFERENCE.items()]
    text = "All that can be imported from `dualstudent`, as its docstrings describe it."
    index = ["# Reference", "", text, "", *listed, ""]
    return {"index": "\n".join(index)} | {name: "\n\n".join(of) for name, of in pages.items()}


def _find_top(module: str) -> str:
    top = module.split(".", maxsplit=1)[0]
    if not any(top in of.split() for _, of in _REFERENCE.values()):
        raise PluginError(f"docs/site/hooks.py: on which page of the reference is {module}?")
    return top


def _list_public_names() -> Iterable[tuple[str, str]]:
    stub = (ROOT / "src" / "dualstudent" / "__init__.pyi").read_text("utf-8")
    for node in ast.parse(stub).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.module or alias.name, alias.name
