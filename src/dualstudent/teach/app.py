"""The web application: what the page may ask for."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial, wraps
from importlib.resources import files
from typing import Any, TypeVar

import anyio
from pydantic import Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from dualstudent.data.images.decoding import UnreadableImage
from dualstudent.errors import UserError, escape_line
from dualstudent.report.html import load_templates
from dualstudent.settings import Settings
from dualstudent.teach.classroom import Classroom
from dualstudent.teach.exchange import export_table, export_tasks, import_labels
from dualstudent.teach.journal import read_number
from dualstudent.teach.pictures import SIDES, draw_picture
from dualstudent.teach.snapshot import write_class_folders
from dualstudent.teach.view import (
    describe_class,
    describe_images,
    describe_room,
    describe_suspects,
    describe_training,
)

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_MOST_BYTES = 1 << 20  # of a request
_MOST_IMPORTED = 1 << 28  # of a file to import
_REPORT = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TICK = 0.5  # seconds between looks at whether it is time to learn

Kind = TypeVar("Kind", bound=Settings)
Handler = Callable[["Api", Request], Awaitable[Response]]


class LabelRequest(Settings):
    """Images and their label; or why they have none."""

    images: list[int] = Field(min_length=1, max_length=1000)
    label: str = ""
    event: str = ""


class ClassRequest(Settings):
    """A class to add, rename or remove."""

    name: str
    new: str | None = None
    remove: bool = False


class NextRequest(Settings):
    """Images wanted by a tab."""

    tab: str = Field(max_length=64)
    count: int = Field(ge=1, le=40)
    shown: list[int] = Field([], max_length=200)
    label: str = ""
    event: str = ""


class TrainingRequest(Settings):
    """A thorough training to begin or to stop."""

    stop: bool = False
    tested: bool = True


class FoldersRequest(Settings):
    """Folders of classes to write, as copies or as links."""

    link: bool = False


def build_app(room: Classroom) -> Starlette:
    """Build the application.

    Args:
        room: all that is behind the page.
    """
    app = Starlette(routes=Api(room).list_routes(), lifespan=partial(_tick, room))
    app.router.redirect_slashes = False  # the page needs none, and queries break it
    return app


def _answer_errors(handler: Handler) -> Handler:
    """Answer a user's mistake, or a disk that is full, by one line of text."""

    @wraps(handler)
    async def answer(self: "Api", request: Request) -> Response:
        try:
            return await handler(self, request)
        except UserError as error:
            return JSONResponse({"error": escape_line(error)}, 400)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            return JSONResponse({"error": escape_line(f"{where}: {first['msg']}")}, 400)
        except OSError as error:
            reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            return JSONResponse({"error": escape_line(f"not saved: {reason}")}, 507)

    return answer


class Api:
    """The requests of the page.

    Args:
        room: all that is behind the page.
    """

    def __init__(self, room: Classroom) -> None:
        self._room = room
        self._static = {
            path.name: path.read_bytes()
            for package in ("teach/static", "report/templates")
            for path in files("dualstudent").joinpath(package).iterdir()
            if path.name.endswith(tuple(_TYPES))
        }

    def list_routes(self) -> list[Route]:
        """List path, handler and method."""
        return [
            Route("/", self.get_page),
            Route("/static/{name}", self.get_static),
            Route("/state", self.get_state),
            Route("/image/{number}/{side}", self.get_image),
            Route("/class", self.get_class),
            Route("/suspects", self.get_suspects),
            Route("/export/{name}", self.get_export),
            Route("/report/{name}", self.get_report),
            Route("/next", self.post_next, methods=["POST"]),
            Route("/label", self.post_label, methods=["POST"]),
            Route("/undo", self.post_undo, methods=["POST"]),
            Route("/classes", self.post_class, methods=["POST"]),
            Route("/import", self.post_import, methods=["POST"]),
            Route("/folders", self.post_folders, methods=["POST"]),
            Route("/training", self.post_training, methods=["POST"]),
        ]

    async def get_page(self, request: Request) -> Response:
        templates = load_templates("dualstudent.teach", "static")
        name = escape_line(self._room.session.collection.source.name)
        text = templates.get_template("page.html").render(name=name)
        return Response(text, media_type="text/html")

    async def get_static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._static:
            return Response("there is no such file\n", 404)
        kind = next(kind for ending, kind in _TYPES.items() if name.endswith(ending))
        return Response(self._static[name], media_type=kind)

    async def get_state(self, request: Request) -> Response:
        """Everything beside the image; 204 if nothing has changed and nothing is trained."""
        training = await run_in_threadpool(describe_training, self._room)
        runs = training is not None and training["state"] == "running"
        if request.query_params.get("since") == str(self._room.changes) and not runs:
            return Response(status_code=204)
        return await self._describe()

    @_answer_errors
    async def get_image(self, request: Request) -> Response:
        room, entries = self._room, self._room.session.labels.entries
        number, side = (read_number(request.path_params[name]) for name in ("number", "side"))
        if side not in SIDES or not 0 <= number < len(entries) or entries[number].is_gone:
            return Response("there is no such image\n", 404)
        path = room.session.find_file(number)
        try:
            content, kind = await run_in_threadpool(draw_picture, path, side)
        except UnreadableImage as unreadable:
            room.note_unreadable(number, unreadable.reason)
            return Response(escape_line(unreadable.reason), 422)
        return Response(content, media_type=kind, headers={"cache-control": "private, max-age=600"})

    async def get_class(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        return JSONResponse(await run_in_threadpool(describe_class, self._room, name))

    async def get_suspects(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(describe_suspects, self._room))

    async def get_export(self, request: Request) -> Response:
        """Labels and predictions as a file to keep."""
        room, name = self._room, request.path_params["name"]
        said = room.list_said()
        if name == "label-studio.json":
            version = f"dualstudent teach, {room.answer.labels if room.answer else 0} labels"
            text = await run_in_threadpool(export_tasks, room.session, said, version)
            kind = "application/json"
        elif name == "labels.csv":
            text, kind = await run_in_threadpool(export_table, room.session, said), "text/csv"
        else:
            return Response("there is no such export\n", 404)
        attached = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(text, media_type=kind, headers=attached)

    @_answer_errors
    async def get_report(self, request: Request) -> Response:
        run = self._room.training.find_run(request.path_params["name"])
        headers = {"content-security-policy": _REPORT}
        return FileResponse(run.page, media_type="text/html", headers=headers)

    @_answer_errors
    async def post_next(self, request: Request) -> Response:
        asked = await _read(request, NextRequest)
        found = await run_in_threadpool(
            self._room.choose_next, asked.tab, asked.count, asked.shown, asked.label, asked.event
        )
        return JSONResponse(await run_in_threadpool(describe_images, self._room, found))

    @_answer_errors
    async def post_label(self, request: Request) -> Response:
        asked = await _read(request, LabelRequest)

        def write() -> None:
            with self._room.change() as session:
                if asked.event:
                    session.set_aside(asked.images, asked.event)
                else:
                    session.set_label(asked.images, asked.label)

        await run_in_threadpool(write)
        return await self._describe()

    @_answer_errors
    async def post_undo(self, request: Request) -> Response:
        def undo() -> list[dict[str, Any]] | None:
            with self._room.change() as session:
                undone = session.undo()
            return None if undone is None else describe_images(self._room, undone)

        undone = await run_in_threadpool(undo)
        return await self._describe(undone=undone)

    @_answer_errors
    async def post_class(self, request: Request) -> Response:
        asked = await _read(request, ClassRequest)

        def write() -> None:
            with self._room.change() as session:
                if asked.remove:
                    session.remove_class(asked.name)
                elif asked.new is not None:
                    session.rename_class(asked.name, asked.new)
                else:
                    session.add_class(asked.name)

        await run_in_threadpool(write)
        return await self._describe()

    @_answer_errors
    async def post_import(self, request: Request) -> Response:
        content = await _read_body(request, _MOST_IMPORTED)

        def write() -> dict[str, Any]:
            with self._room.change() as session:
                found = import_labels(session, content)
            names = [escape_line(name) for name in found.unknown[:10]]
            return {"labels": found.labels, "unknown": len(found.unknown), "names": names}

        return await self._describe(imported=await run_in_threadpool(write))

    @_answer_errors
    async def post_folders(self, request: Request) -> Response:
        asked = await _read(request, FoldersRequest)
        session = self._room.session
        numbers = (session.folder / f"classes-{number}" for number in range(1, 10_000))
        folder = next(path for path in numbers if not path.exists())
        write = partial(write_class_folders, session, folder, "link" if asked.link else "copy")
        count = await run_in_threadpool(write)
        return await self._describe(folders={"path": escape_line(folder), "images": count})

    @_answer_errors
    async def post_training(self, request: Request) -> Response:
        asked = await _read(request, TrainingRequest)
        training = self._room.training
        await run_in_threadpool(
            training.stop if asked.stop else partial(training.start, asked.tested)
        )
        return await self._describe()

    async def _describe(self, **more: Any) -> Response:
        found = await run_in_threadpool(describe_room, self._room)
        training = await run_in_threadpool(describe_training, self._room)
        return JSONResponse(found | {"training": training} | more)


@asynccontextmanager
async def _tick(room: Classroom, app: Starlette) -> AsyncIterator[None]:
    """Look from time to time whether labels wait to be learned."""

    async def look() -> None:
        while True:
            await anyio.sleep(_TICK)
            await run_in_threadpool(room.learn_if_due)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        yield
        tasks.cancel_scope.cancel()


async def _read_body(request: Request, most: int) -> bytes:
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > most:
            raise UserError(f"more than {most:,} bytes; send less at once")
    return bytes(content)


async def _read(request: Request, kind: type[Kind]) -> Kind:
    """Read and validate the JSON of a request."""
    if request.headers.get("content-type", "").split(";")[0] != "application/json":
        raise UserError("send JSON")
    return kind.model_validate_json(await _read_body(request, _MOST_BYTES))
