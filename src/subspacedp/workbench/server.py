"""The server: requests of the page, answered from one session on this machine alone.

The address that is opened has a random token. Whoever brings it gets a cookie that only this site's
own requests carry; the token stays in no address of the page. The page lies below a random path,
and the cookie with it: browsers bring cookies to every port of a host, and whoever serves another
port of this machine would else be brought this one. Every request must name this very host, and
every change must come from this very origin, so that neither another site in the same browser nor
a name that resolves to this machine reaches anything.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import os
import secrets
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.publication.faults import in_yaml
from subspacedp.workbench.page import asset, page, regions, report_style
from subspacedp.workbench.session import Session

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.requests import Request, cookie_parser
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError:
    raise ReleaseError(
        "The workbench needs packages that are not installed; install `subspacedp[workbench]`."
    ) from None

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LARGEST = 5_000_000  # bytes of a request
# A page that goes on by itself is of this site, so that its next request carries the cookie.
ENTRANCE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>subspacedp workbench</title>'
    '<link rel="icon" href="data:,">'
    '<meta http-equiv="refresh" content="0; url={place}">'
    '<p><a href="{place}">Open the workbench</a></p>'
)
STRANGER = (
    "This workbench answers only the browser that was given its address. Open the address that "
    "`subspacedp workbench` printed; it is another one each time."
)


class Gate:
    """Lets requests through to the page, or refuses them.

    Guarantees
    ----------
    1. Without the token or the cookie nothing is answered but that it is refused. The browser
       brings the cookie to no other path than that of the page, which no other page is told.
    2. A request whose Host is not this server's own address is refused, and one that comes from
       another origin, or does not say from where it comes though it may change something.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self.app, self.host = app, host
        self.origin = f"http://{host}"
        self.token, self._pass = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self.cookie = f"subspacedp-{host.rpartition(':')[2]}"  # one for each of several workbenches
        self.place = f"/{secrets.token_urlsafe(16)}/"

    @property
    def address(self) -> str:
        """What to open."""
        return f"{self.origin}/?token={self.token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on with headers that keep others out."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refused = self._refused(scope, headers)
        if refused is not None:
            await _with_headers(refused)(scope, receive, send)
            return
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["method"] == "GET" and scope["path"] == "/" and _same(token, self.token):
            response = HTMLResponse(ENTRANCE.format(place=self.place))
            response.set_cookie(
                self.cookie, self._pass, path=self.place, httponly=True, samesite="strict"
            )
            await _with_headers(response)(scope, receive, send)
            return
        cookies = cookie_parser(headers.get("cookie", ""))
        known = _same(cookies.get(self.cookie, ""), self._pass)
        if not known or not scope["path"].startswith(self.place):
            await _with_headers(PlainTextResponse(STRANGER, 403))(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.lower().encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.lower().encode() not in present
                    ),
                ]
            await send(message)

        inside = scope["path"][len(self.place) - 1 :]
        await self.app({**scope, "path": inside, "raw_path": inside.encode()}, receive, guarded)

    def _refused(self, scope: Scope, headers: Headers) -> Response | None:
        if headers.getlist("host") != [self.host]:
            return PlainTextResponse("This is not the address of this workbench.", 421)
        changes = scope["method"] not in ("GET", "HEAD")
        origins = headers.getlist("origin")
        if origins != [self.origin] and (origins or changes):
            return PlainTextResponse("Other sites have no access to this workbench.", 403)
        site = headers.get("sec-fetch-site", "same-origin")
        entering = scope["path"] in ("/", self.place) and scope["method"] == "GET"
        if site not in ("same-origin", "none") and not entering:
            return PlainTextResponse("Other sites have no access to this workbench.", 403)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > LARGEST or "transfer-encoding" in headers:
            return PlainTextResponse("That is too long.", 413)
        return None


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _with_headers(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers[name] = value
    return response


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
