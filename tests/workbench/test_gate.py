"""Other sites, other names of this machine and strangers get nothing."""

import asyncio
import re

import httpx
import pytest
from tests.workbench.conftest import SPECIFICATION

from subspacedp.workbench.draft import Draft
from subspacedp.workbench.server import Gate, News, application
from subspacedp.workbench.session import Session

HOST = "127.0.0.1:8123"
OWN = f"http://{HOST}"
PUT = {"do": "text", "text": "title: forged\n"}


@pytest.fixture
def gate(tmp_path):
    path = tmp_path / "publication.yaml"
    path.write_text(SPECIFICATION, "utf-8")
    return Gate(application(Session(Draft(path)), News()), HOST)


class Browser:
    """Asks as a browser on this machine does; it keeps its cookies."""

    def __init__(self, gate):
        self.gate, self.cookies = gate, httpx.Cookies()

    def ask(self, method, path, **options):
        async def once():
            transport = httpx.ASGITransport(app=self.gate)
            async with httpx.AsyncClient(
                transport=transport, base_url=OWN, cookies=self.cookies
            ) as client:
                answer = await client.request(method, path, **options)
                self.cookies = client.cookies
                return answer

        return asyncio.run(once())

    def get(self, path, **options):
        return self.ask("GET", self.inside(path), **options)

    def post(self, path, **options):
        return self.ask("POST", self.inside(path), **options)

    def inside(self, path):
        """Where the page has what is asked for."""
        entrance = "token=" in path or not path.startswith("/")
        return path if entrance else self.gate.place.removesuffix("/") + path


def browser(gate, *, entered=True):
    """A browser with or without the cookie."""
    client = Browser(gate)
    if entered:
        assert client.get(f"/?token={gate.token}").status_code == 200
    return client


def test_the_token_gives_a_cookie_of_this_site_and_stays_in_no_address(gate):
    client = browser(gate, entered=False)
    answer = client.get(gate.address)
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert re.search("samesite=strict", cookie, re.I)
    assert gate.token not in cookie
    assert f"Path={gate.place}" in cookie
    assert f'content="0; url={gate.place}"' in answer.text
    assert gate.token not in answer.text + gate.place
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    page = client.get("/")
    assert page.status_code == 200
    assert "Persons by county, sex and age" in page.text
    assert gate.token not in page.text


@pytest.mark.parametrize("path", ["/", "/news", "/static/workbench.js", "/report", "/none"])
def test_a_stranger_is_told_nothing(gate, path):
    client = browser(gate, entered=False)
    for address in (path, f"{path}?token=", f"{path}?token={gate.token[:-1]}x"):
        answer = client.get(address)
        assert answer.status_code == 403
        assert "Persons" not in answer.text
    client.cookies.set(gate.cookie, "guessed")
    assert client.get(path).status_code == 403


def test_who_has_the_cookie_but_not_the_place_is_told_nothing(gate):
    client = browser(gate)
    mine = client.cookies[gate.cookie]
    for path in ("/", "/news", "/static/workbench.js", f"{gate.place[:-1]}x/", gate.place[:-1]):
        answer = client.ask("GET", path, headers={"Cookie": f"{gate.cookie}={mine}"})
        assert answer.status_code == 403
        assert "Persons" not in answer.text
    assert Gate(gate.app, HOST).place != gate.place


@pytest.mark.parametrize(
    "host",
    [
        "localhost:8123",
        "127.0.0.1",
        "127.0.0.1:8124",
        "evil.example:8123",
        "127.0.0.1:8123.evil.example",
    ],
)
def test_another_host_is_refused_though_it_brings_the_cookie(gate, host):
    """A name of another site that was pointed at this machine."""
    client = browser(gate)
    assert client.get("/", headers={"Host": host}).status_code == 421
    assert client.post("/do", json=PUT, headers={"Host": host, "Origin": OWN}).status_code == 421
    assert client.get(f"/?token={gate.token}", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "http://localhost:8123",
        "http://evil.example",
        "https://127.0.0.1:8123",
        f"{OWN}/",
    ],
)
def test_another_origin_changes_nothing_though_it_brings_the_cookie(gate, origin):
    client = browser(gate)
    headers = {} if origin is None else {"Origin": origin}
    answer = client.post("/do", json=PUT, headers=headers)
    assert answer.status_code == 403
    assert "forged" not in client.get("/").text
    if origin is not None:
        assert client.get("/news?after=-1", headers=headers).status_code == 403


def test_a_page_of_another_site_cannot_read_along(gate):
    client = browser(gate)
    for site in ("cross-site", "same-site"):
        assert client.get("/news?after=-1", headers={"Sec-Fetch-Site": site}).status_code == 403
    assert (
        client.get("/news?after=-1", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    )


def test_the_page_itself_may_change_its_draft(gate):
    client = browser(gate)
    answer = client.post("/do", json={**PUT, "after": 0}, headers={"Origin": OWN})
    assert answer.status_code == 200
    assert answer.json()["text"] == "title: forged\n"


def test_every_answer_keeps_other_sites_and_caches_out(gate):
    client = browser(gate)
    stranger = browser(gate, entered=False)
    for answer in (client.get("/"), client.get("/static/workbench.js"), stranger.get("/")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_is_too_long_or_no_question_is_refused(gate):
    client = browser(gate)
    long = {"Origin": OWN, "Content-Length": str(10**9)}
    assert client.post("/do", content=b"{}", headers=long).status_code == 413
    for body in (b"", b"[]", b"{", b'"a"', b"\xff"):
        assert client.post("/do", content=body, headers={"Origin": OWN}).status_code == 400
    answer = client.post("/do", json={"do": "open"}, headers={"Origin": OWN})
    assert "not known" in answer.json()["said"]
    for name in ("../session.py", "%2e%2e/server.py", "design.html"):
        assert client.get(f"/static/{name}").status_code == 404


def test_internal_names_are_no_controls(gate):
    client = browser(gate)
    for name in ("", "__init__", "close", "_change"):
        answer = client.post("/do", json={"do": name}, headers={"Origin": OWN})
        assert answer.status_code in (200, 400)
        if answer.status_code == 200:
            assert "not known" in answer.json()["said"]
