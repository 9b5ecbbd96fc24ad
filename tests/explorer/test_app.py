"""The requests of the page: what is answered, and who is refused."""

from __future__ import annotations

import contextlib
import json
import select
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from explorer.serving import Page, served
from explorer.walks import Lamp
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE

from fencepost import OptionError
from fencepost.behaviours.reading import read
from fencepost.explorer.app import FORMS, LOOPBACK, MAX_CONNECTIONS, listen


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with served(Lamp(faulty=True)) as page:
        yield page


def test_the_page_stands_alone(page: Page) -> None:
    for path in ("/", "/explorer.js", "/explorer.css", "/report.css", "/icon.svg"):
        status, body = page.ask("GET", path)
        assert status == 200
        text = body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert "//cdn" not in text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:{port}"}, 200),
        ({"host": "127.0.0.1"}, 403),
        ({"host": "127.0.0.1:1"}, 403),
        ({"host": "evil.example:{port}"}, 403),
        ({"host": "localhost.evil.example:{port}"}, 403),
        ({"origin": "http://127.0.0.1:{port}"}, 200),
        ({"origin": "http://localhost:{port}"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"origin": "https://127.0.0.1:{port}"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_only_its_own_page_is_answered(page: Page, headers: dict[str, str], status: int) -> None:
    given = {name: value.format(port=page.port) for name, value in headers.items()}
    assert page.ask("POST", "/api/begin", {}, **given)[0] == status


ROUTES = ["/", "/explorer.js", "/explorer.css", "/report.css", "/icon.svg", "/keep/json?tip=0", "/nothing"]


@pytest.mark.parametrize(
    "path", [*ROUTES, "/api/about", "/api/begin", "/api/look", "/api/take", "/api/find", "/api/found", "/api/stop"]
)
def test_nobody_is_answered_without_the_token(page: Page, path: str) -> None:
    body: dict[str, Any] | None = {} if path.startswith("/api/") else None
    method = "GET" if body is None else "POST"
    own = page.explorer.token
    for cookie in (
        "",
        "token",
        f"fencepost-{page.port}=",
        f"fencepost-{page.port}={own[:-1]}",
        f"fencepost-1={own}",
        f"fencepost-{page.port}=\xe9",
    ):
        status, said, headers = page.whole(method, path, body, cookie=cookie)
        assert (status, said) == (403, b"refused: open the address that fencepost explore printed, with its token\n")
        assert "set-cookie" not in headers
    separator = "&" if "?" in path else "?"
    assert page.whole(method, f"{path}{separator}token={own[:-1]}", body)[0] == 403
    if path != "/":
        assert page.whole(method, f"{path}{separator}token={own}", body)[0] == 403


def test_the_address_that_is_printed_lets_a_browser_in(page: Page) -> None:
    path = page.address[page.address.index("/?") :]
    status, _, headers = page.whole("GET", path)
    assert status == 200
    cookie, *attributes = headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} == set(attributes)
    assert page.whole("GET", "/explorer.js", cookie=cookie)[0] == 200
    assert page.whole("POST", "/api/begin", {}, cookie=f"other=1; {cookie}")[0] == 200
    assert page.whole("GET", path, host="evil.example")[0] == 403
    with served(Lamp()) as other:
        assert other.explorer.token != page.explorer.token
        assert other.whole("GET", "/", cookie=f"fencepost-{other.port}={page.explorer.token}")[0] == 403


def test_a_link_from_elsewhere_opens_the_page_and_nothing_more(page: Page) -> None:
    elsewhere = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert page.ask("GET", "/", **elsewhere)[0] == 200
    assert page.ask("GET", "/", **{**elsewhere, "sec_fetch_dest": "iframe"})[0] == 403
    assert page.ask("GET", "/explorer.js", sec_fetch_site="cross-site", sec_fetch_mode="no-cors")[0] == 403
    assert page.ask("GET", "/keep/json?tip=0", **elsewhere)[0] == 400  # the session's name is not known elsewhere


def test_it_listens_to_this_machine_alone() -> None:
    with listen(0) as bound:
        assert bound.getsockname()[0] == "127.0.0.1"
        assert bound.proto == socket.IPPROTO_TCP  # or asyncio lets every answer wait
        with pytest.raises(OptionError, match="port .* cannot be used"):
            listen(bound.getsockname()[1])


def test_silent_connections_make_room_for_others_and_heads_have_a_limit(page: Page) -> None:
    silent = [socket.create_connection((LOOPBACK, page.port), timeout=PATIENCE) for _ in range(2 * MAX_CONNECTIONS)]
    for each in silent[::2]:
        each.sendall(b"GET / HTTP/1.1\r\n")  # and never the rest
    assert page.ask("POST", "/api/about", {})[0] == 200
    ended = set[socket.socket]()
    while len(ended) < MAX_CONNECTIONS:  # which of them were silent for longer is not known here
        readable, _, _ = select.select([each for each in silent if each not in ended], [], [], PATIENCE)
        assert readable
        for each in readable:
            with contextlib.suppress(ConnectionError):
                assert each.recv(1) == b""
            ended.add(each)
    for each in silent:
        each.close()
    with socket.create_connection((LOOPBACK, page.port), timeout=PATIENCE) as bomb:
        with contextlib.suppress(ConnectionError):
            bomb.sendall(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 1_000_000)
            while bomb.recv(1 << 16):
                pass


def test_bad_requests_are_told_and_the_session_goes_on(page: Page) -> None:
    begun = page.tell("begin")
    for name, body in (
        ("take", {"at": 0, "move": [99]}),
        ("take", {"at": 0, "move": "x"}),
        ("take", {"at": 0, "move": []}),
        ("take", {"at": 0}),
        ("take", {"at": 10**9, "move": [0]}),
        ("take", {"at": -1, "move": [0]}),
        ("look", {"at": "0"}),
        ("look", {"at": 0, "watches": ["x"] * 31}),
        ("look", {"at": 0, "watches": [1]}),
        ("look", {"at": 0, "watches": ["x" * 3_000]}),
        ("begin", {"path": "nowhere"}),
        ("begin", {"file": "{}"}),
        ("find", {"expression": "nothing_like_it"}),
        ("find", {}),
    ):
        assert page.tell(name, 400, **body)["error"]
    assert page.ask("POST", "/api/look", b"{")[0] == 400
    assert page.ask("POST", "/api/look", b"[]")[0] == 400
    for damaged in (b"[" * 100_000, b'{"at":' * 100_000, b'{"at": "\xff"}', b"\x00"):
        status, said = page.ask("POST", "/api/look", damaged)
        assert (status, list(json.loads(said))) == (400, ["error"])
    for text in ("\ud800", '"\ud800"', "'" + "\ud800" * 9, "10 ** 5_000"):
        assert page.tell("look", 200, at=begun["at"], watches=[text])["watches"][0]["text"] == text
    assert page.ask("POST", "/api/look", {"session": "another", "at": 0})[0] == 409
    assert page.ask("GET", "/api/look")[0] == 405
    assert page.ask("GET", "/keep/exe?tip=0")[0] == 404
    assert page.tell("look", at=begun["at"])["place"] == 0


NUMBERS = st.sampled_from(
    ["", "0", "1", "²", "٣", "-1", "1e3", " 1", "1_0", "9" * 18, "9" * 19, "9" * 5000, "0" * 6000]
)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
PATHS = st.builds("{}/{}.{}@{}".format, NUMBERS, NUMBERS, NUMBERS, NUMBERS) | st.builds("0@{}".format, NUMBERS) | WORDS
FIELDS = ("at", "tip", "move", "known", "drawn", "watches", "path", "file", "expression")


@settings(max_examples=60, deadline=None)
@given(
    form=st.sampled_from(["json", "itf", "txt", "svg", "²"]) | WORDS, tip=NUMBERS | WORDS, whose=st.booleans() | WORDS
)
def test_whatever_stands_in_an_address_is_answered(page: Page, form: str, tip: str, whose: bool | str) -> None:
    session = page.explorer.name if whose is True else whose or ""
    asked = urlencode({"tip": tip, "session": session})
    assert page.ask("GET", f"/keep/{quote(form, safe='')}?{asked}")[0] in (200, 400, 404)


@settings(max_examples=120, deadline=None)
@given(
    name=st.sampled_from(["about", "begin", "look", "take", "found", "stop"]),
    body=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4),
    path=st.none() | PATHS,
)
def test_whatever_is_asked_is_answered(page: Page, name: str, body: dict[str, Any], path: str | None) -> None:
    if path is not None:
        body["path"] = path
    status, said = page.ask("POST", f"/api/{name}", {"session": page.explorer.name, **body})
    assert status in (200, 400) and isinstance(json.loads(said), dict), said


def test_numbers_of_any_length_are_answered(page: Page) -> None:
    for path in ("0@" + "1" * 6000, "0@²", "0/" + "9" * 4000, "0/0." + "9" * 4000):
        assert page.ask("POST", "/api/begin", {"path": path})[0] in (200, 400)
    for number in (b"9" * 5000, b"1e400", b"-" + b"9" * 5000, b"NaN"):
        assert (
            page.ask("POST", "/api/look", b'{"session": "%s", "at": %s}' % (page.explorer.name.encode(), number))[0]
            == 400
        )


def test_a_large_body_is_taken_and_a_larger_one_is_not(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.explorer.app.MAX_BODY", 8 << 20)
    assert page.ask("POST", "/api/about", b"{" + b" " * ((8 << 20) - 2) + b"}")[0] == 200
    assert page.ask("POST", "/api/about", b" " * ((8 << 20) + 1))[0] == 413


def test_what_the_protocol_raises_is_told_and_the_session_goes_on(page: Page) -> None:
    begun = page.tell("begin")
    on = page.tell("take", at=begun["at"], move=begun["actors"][0]["actions"][0]["offers"][0]["move"])
    errors = [a["error"] for actor in on["actors"] for a in actor["actions"] if a["error"]]
    assert len(errors) == 1
    assert "this is not for the lamp" in errors[0]
    number = next(i for i, root in enumerate(page.explorer.session.actions) if root.name == "fails")
    assert "this is not for the lamp" in page.tell("take", 400, at=on["at"], move=[number])["error"]
    assert page.tell("take", at=on["at"], move=[0])["place"] == 2


def test_a_path_is_kept_in_every_form(page: Page) -> None:
    begun = page.tell("begin")
    on = page.tell("take", at=begun["at"], move=[0])
    kept = {}
    for form in FORMS:
        status, kept[form] = page.ask("GET", f"/keep/{form}?session={page.explorer.name}&tip={on['tip']}")
        assert status == 200
    assert len(read(kept["json"]).steps) == len(read(kept["itf"]).steps) == on["length"] - 1
    assert kept["svg"].startswith(b"<svg")
    assert b"participant" in kept["txt"]
    opened = page.tell("begin", file=kept["json"].decode())
    assert opened["tip"] == on["tip"]
    assert opened["path"] == on["path"]
    assert page.tell("begin", path=on["path"] + "@0")["at"] == begun["at"]


def test_one_search_at_a_time(page: Page) -> None:
    told = page.tell("find", expression="broken and pressed == 2")
    while told["search"]["running"]:
        told = page.tell("found")
    # The search meets the action that raises before anything else.
    assert "this is not for the lamp" in told["search"]["said"]
    json.dumps(told)


def test_the_usual_port_is_left_alone_if_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr("fencepost.explorer.app.USUAL_PORT", taken.getsockname()[1])
        with listen(None) as bound:
            assert bound.getsockname()[1] != taken.getsockname()[1]
