"""The server: requests of the page, answered from one session on this machine alone."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from html import escape
from pathlib import Path
from typing import Any

from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.publication.faults import in_yaml
from subspacedp.workbench.page import asset, page, regions, report_style
from subspacedp.workbench.session import Session

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route
except ImportError:
    raise ReleaseError(
        "The workbench needs packages that are not installed; install `subspacedp[workbench]`."
    ) from None

from subspacedp.workbench.gate import Gate

HOST = "127.0.0.1"  # no other machine reaches it
WAIT = 20.0  # seconds that a question for news is kept open
# It states the rest itself. Its scripts are of no site, so that none reaches the workbench.
REPORT_POLICY = (
    "sandbox allow-scripts allow-popups allow-downloads; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)
SENTENCE = "That could not be read."


def bound(port: int) -> socket.socket:
    """A socket on this machine; one sentence where its port is taken."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.name == "posix":
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HOST, port))
        made.listen(64)
    except (OSError, OverflowError) as error:
        made.close()
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            reason = f"Port {port} is in use; leave out `--port` for a free one, or name another."
        else:
            said = getattr(error, "strerror", None) or "it is no port"
            reason = f"Port {port} cannot be opened: {said}; leave out `--port` for a free one."
        raise ReleaseError(reason) from None
    return made


class News:
    """Wakes those who wait for something new."""

    def __init__(self) -> None:
        self._next = asyncio.Event()
        self.over = False

    def tell(self) -> None:
        """There is something new."""
        told, self._next = self._next, asyncio.Event()
        told.set()

    def end(self) -> None:
        """There will be nothing new any more."""
        self.over = True
        self.tell()

    async def wait(self, there: Callable[[], bool], seconds: float) -> None:
        """Until it is there, the time has passed, or the server ends."""
        end = time.monotonic() + seconds
        while not there() and not self.over and time.monotonic() < end:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._next.wait(), end - time.monotonic())


def application(session: Session, news: News) -> Starlette:
    """What answers the page; everything that is asked for goes through the gate first."""
    styles = {
        "report.css": (report_style(), "text/css"),
        "workbench.css": (asset("workbench.css"), "text/css"),
        "workbench.js": (asset("workbench.js"), "text/javascript"),
    }

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        loop = asyncio.get_running_loop()

        def tell(message: Any) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(session.told, message)

        session.changed = news.tell
        session.open(tell)
        yield
        session.changed = lambda: None

    async def whole(request: Request) -> Response:
        del request
        return HTMLResponse(page(session))

    async def style(request: Request) -> Response:
        text, kind = styles[request.path_params["name"]]
        return Response(text, media_type=kind)

    async def latest(request: Request) -> Response:
        asked = request.query_params.get("after", "0")
        after = int(asked) if asked.removeprefix("-").isdecimal() and len(asked) < 16 else 0
        await news.wait(lambda: session.version > after, WAIT)
        return JSONResponse(_news(session, after))

    async def do(request: Request) -> Response:
        try:
            form = await request.json()
            after = int(form.pop("after", 0))
            session.do(form)
            said = ""
        except SubspaceDPError as error:
            said = in_yaml(str(error))
        except OSError as error:
            said = f"A file cannot be read or written: {error.strerror}."
        except (ValueError, TypeError, KeyError, AttributeError):
            return PlainTextResponse(SENTENCE, 400)
        return JSONResponse({**_news(session, after), "said": said})

    async def report(request: Request) -> Response:
        folder = session.released
        if folder is None or not (folder / "report.html").is_file():
            return PlainTextResponse("There is no report yet.", 404)
        del request
        text = (folder / "report.html").read_text("utf-8")
        return HTMLResponse(text, headers={"Content-Security-Policy": REPORT_POLICY})

    return Starlette(
        routes=[
            Route("/", whole),
            Route("/news", latest),
            Route("/do", do, methods=["POST"]),
            Route("/report", report),
            Route("/static/{name:str}", style),
        ],
        lifespan=lifespan,
        exception_handlers={KeyError: _missing},
    )


async def _missing(request: Request, error: Exception) -> Response:
    del request, error
    return PlainTextResponse("There is nothing here.", 404)


def _news(session: Session, after: int) -> dict[str, Any]:
    """What a tab has to show anew."""
    return {
        "version": session.version,
        "regions": regions(session, after),
        "text": session.draft.text,
        "notice": session.notice,
        "number": session.number,
        "shown": session.known.plan is not None or session.known.refused is not None,
        "busy": session.known.busy,
    }


class _Server(uvicorn.Server):
    """Ends at once: tabs that wait for news are sent home."""

    def __init__(self, config: uvicorn.Config, news: News) -> None:
        super().__init__(config)
        self._news = news

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._news.end()
        await super().shutdown(sockets)


def serve(session: Session, port: int, opened: Callable[[str, str], None]) -> None:
    """Answer until Ctrl-C; `opened` gets the address to print and the file to open in a browser."""
    listening = bound(port)
    news = News()
    gate = Gate(application(session, news), f"{HOST}:{listening.getsockname()[1]}")
    config = uvicorn.Config(
        gate,
        log_level="critical",  # an error's words may be about data
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    with tempfile.TemporaryDirectory(prefix="subspacedp-") as folder:
        # The arguments of a browser are for everybody on this machine to read; this file is not.
        entrance = Path(folder) / "open.html"
        address = escape(gate.address)
        entrance.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">'
            f'<a href="{address}">Open the workbench</a>',
            "utf-8",
        )
        entrance.chmod(0o600)
        opened(gate.address, entrance.as_uri())
        try:
            _Server(config, news).run(sockets=[listening])
        finally:
            session.close()
            listening.close()
