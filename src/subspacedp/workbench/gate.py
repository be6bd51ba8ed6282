"""Who may speak to the page: the browser that got its address, from the page itself.

The address that is opened has a random token. Whoever brings it gets a cookie that only this site's
own requests carry; the token stays in no address of the page. The page lies below a random path,
and the cookie with it: browsers bring cookies to every port of a host, and whoever serves another
port of this machine would else be brought this one. Every request must name this very host, and
every change must come from this very origin, so that neither another site in the same browser nor
a name that resolves to this machine reaches anything.
"""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
