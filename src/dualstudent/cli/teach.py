"""``dualstudent teach``: label images in the browser, and watch the model learn."""

import shlex
from contextlib import closing, nullcontext
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from dualstudent.cli.arguments import Changes
from dualstudent.cli.console import console, print_line, print_message
from dualstudent.errors import UserError

if TYPE_CHECKING:
    from dualstudent.teach.server import Door
    from dualstudent.teach.session import Session


def teach(
    where: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Images, with or without labels: a folder, a table, or the folder of a run.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the labels and runs; default: FOLDER-labels beside FOLDER."),
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port of the page; 0 for any free one.")] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than the default, others get in.")
    ] = "127.0.0.1",
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address of the page.")
    ] = False,
    precision: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Wanted share of correct predictions among the trusted ones."
        ),
    ] = 0.95,
    who: Annotated[
        str | None, typer.Option(help="Name written beside your labels; default: your user name.")
    ] = None,
    import_: Annotated[
        Path | None,
        typer.Option(
            "--import", help="Take labels from JSON of Label Studio or a CSV file, and end."
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Write all labels to a new file, .json for Label Studio or .csv, and end."
        ),
    ] = None,
    folders: Annotated[
        Path | None,
        typer.Option(
            help="Copy labeled images into a new folder with a folder per class, and end."
        ),
    ] = None,
    link: Annotated[
        bool, typer.Option("--link", help="With --folders: links instead of copies.")
    ] = False,
    set_: Changes = None,
) -> None:
    """Label images in the browser: the model asks for those it learns most from.

    Opens a page on this machine; nothing leaves it. Every label is saved at once. Ctrl-C ends it;
    the same command goes on where you were. [bold]--set[/bold] is for thorough trainings.
    """
    _check_installed()
    from dualstudent.teach.images import find_collection
    from dualstudent.teach.session import Session

    collection = find_collection(where)
    session = Session(collection, out or _name_beside(collection.source), who)
    asked = (import_, export, folders)
    try:
        if any(path is not None for path in asked):
            _exchange(session, *asked, link=link)
        else:
            options = [word for change in set_ or [] for word in ("--set", change)]
            _serve(session, host, port, no_browser, precision, tuple(options))
    finally:
        session.close()


def _check_installed() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UserError(
            "teach needs starlette and uvicorn; install the extra 'teach' of dualstudent"
        ) from error


def _exchange(
    session: "Session", source: Path | None, target: Path | None, folders: Path | None, link: bool
) -> None:
    """Import and export without a page."""
    from dualstudent.atomic import create_text_file
    from dualstudent.teach.exchange import export_table, export_tasks, import_labels
    from dualstudent.teach.snapshot import write_class_folders

    if source is not None:
        found = import_labels(session, source.read_bytes())
        print_line(console, f"{found.labels:,} labels from {source}")
        for name in found.unknown[:10]:
            print_message("skipped", "yellow", f"{name}: no such image, or several")
        if len(found.unknown) > 10:
            print_message("skipped", "yellow", f"and {len(found.unknown) - 10:,} more")
    if target is not None:
        with create_text_file(target) as file:
            is_json = target.suffix.lower() == ".json"
            file.write(export_tasks(session, {}, "") if is_json else export_table(session, {}))
        print_line(console, f"all labels in {target}")
    if folders is not None:
        count = write_class_folders(session, folders, "link" if link else "copy")
        print_line(console, f"{count:,} images in {folders}")


def _serve(
    session: "Session",
    host: str,
    port: int | None,
    no_browser: bool,
    precision: float,
    options: tuple[str, ...],
) -> None:
    from dualstudent.teach.classroom import Classroom
    from dualstudent.teach.server import Door, opening_page, serve

    door = Door(host, port)
    if door.outside is not None:
        print_message(
            "warning",
            "yellow",
            f"{host} can be reached from outside: whoever sees the address sees the images and can "
            "change labels, and nothing is encrypted",
        )
    print_line(console, f"{len(session.labels.entries):,} images of {session.collection.source}")
    print_line(console, f"labels: {session.journal.path}")
    opening = nullcontext() if no_browser else opening_page(door.address, session.folder)
    with opening as page, closing(Classroom(session, precision, options=options)) as room:
        serve(room, door, lambda: _open_page(door, page))
    print_line(console, f"{room.count_labels():,} labels in {session.journal.path}")
    command = f"dualstudent train --data {shlex.quote(str(session.journal.path))} --out NEW-RUN"
    print_line(console, f"to train on them: {command}")


def _name_beside(source: Path) -> Path:
    """FOLDER-labels; a folder may have a dot in its name, and nothing goes between two domains."""
    from dualstudent.data.images.folders import holds_domains

    place = source.resolve() if source.name in ("", "..") else source
    name = f"{place.name if place.is_dir() else place.stem}-labels"
    if holds_domains(outer := place.absolute().parent):
        return outer.with_name(f"{outer.name}-{name}")
    return place.with_name(name)


def _open_page(door: "Door", page: Path | None) -> None:
    print_line(console, f"open {door.address}")
    if door.outside not in (None, door.address):
        print_line(console, f"from elsewhere: {door.outside}")
    if page is not None:  # some browsers return when they are closed, and it must be served
        Thread(target=_open_browser, args=(page,), daemon=True).start()
    print_line(console, "Ctrl-C ends it; every label is saved at once")


def _open_browser(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.as_uri()):
        print_message("note", "yellow", "no browser was found here; open the address in one")
