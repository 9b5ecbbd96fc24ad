"""``--checking`` catches a protocol that depends on more than its state, and says what it read and where."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from campaigns import campaign_if
from cli.commandline import COUNTER, Ran

from fencepost import Protocol, action, state
from fencepost.semantics import Stepper

Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def seeds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the tests about other hash seeds start processes for them."""
    if "seed" not in request.node.name:
        monkeypatch.setattr("fencepost.checker.engines.hashseeds.SEEDS", ())


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    """Remove what a step has set in the class of Fencepost."""
    yield
    if "other" in vars(Protocol):
        delattr(Protocol, "other")


PROTOCOL = """
import collections, datetime, enum, functools, itertools, logging, os, random, secrets, time, uuid
from fencepost import *
import helper

counter = itertools.count()
log = []
total = 0
users = collections.UserList()

class Box:
    value = 0

box = Box()
boxes = {"one": (box, Box())}

class Key:
    def __init__(self, n):
        self.n = n
    def __hash__(self):
        return hash(self.n)

class Slotted:
    __slots__ = ("value",)

slotted = Slotted()

class Kind(enum.Enum):
    A = 1

def made():
    held = 0
    def inner():
        nonlocal held
        held += 1
    return inner

inner = made()

def remembers(seen=[]):
    seen.append(1)

@functools.cache
def cached(n):
    return n

class P(Protocol):
    n: int = state(0)
    limit: int = constant(2)
    history = []

    @action(who=("a", "b"))
    def tick(self, who):
        global total
        require(self.n < 2)
        {body}
        self.n += 1
"""
LINE = PROTOCOL[: PROTOCOL.index("{body}")].count("\n") + 1

FORBIDDEN = [
    ("time.time()", "read the clock (time.time at p.py:LINE)"),
    ("time.time_ns()", "read the clock (time.time_ns at p.py:LINE)"),
    ("time.monotonic()", "read the clock (time.monotonic at p.py:LINE)"),
    ("time.perf_counter()", "read the clock (time.perf_counter at p.py:LINE)"),
    ("datetime.datetime.now()", "read the clock (datetime.now at p.py:LINE)"),
    ("datetime.datetime.utcnow()", "read the clock (datetime.utcnow at p.py:LINE)"),
    ("datetime.date.today()", "read the clock (date.today at p.py:LINE)"),
    ("random.random()", "read a random number (random.random at p.py:LINE)"),
    ("random.choice([1, 2])", "read a random number (random.choice at p.py:LINE)"),
    ("random.Random(7).random()", "read a random number (random.Random at p.py:LINE)"),
    ("random.shuffle([1, 2])", "read a random number (random.shuffle at p.py:LINE)"),
    ("os.urandom(4)", "read a random number (os.urandom at p.py:LINE)"),
    ("secrets.token_hex()", "read a random number (secrets.token_hex at p.py:LINE)"),
    ("uuid.uuid4()", "read a random number (uuid.uuid4 at p.py:LINE)"),
    ("os.getenv('HOME')", "read the environment (os.getenv at p.py:LINE)"),
    ("os.environ.get('HOME')", "read the environment (os.environ at p.py:LINE)"),
    ("'HOME' in os.environ", "read the environment (os.environ at p.py:LINE)"),
    ("open('/dev/null')", "read a file (open at p.py:LINE)"),
    ("os.path.exists('x')", "read a file (os.stat at p.py:LINE)"),
    ("os.listdir('.')", "read a directory (os.listdir at p.py:LINE)"),
    ("input()", "read what is typed (input at p.py:LINE)"),
    ("total += 1", "changed total, which is no part of the state"),
    ("log.append(1)", "changed log, which is no part of the state"),
    ("next(counter)", "changed counter, which is no part of the state"),
    ("self.history.append(1)", "changed P.history, which is no part of the state"),
    ("box.value += 1", "changed box, which is no part of the state"),
    ("boxes['one'][1].value += 1", "changed boxes, which is no part of the state"),
    ("slotted.value = 1", "changed slotted, which is no part of the state"),
    ("Box.value += 1", "changed Box.value, which is no part of the state"),
    ("Box.other = 1", "changed Box.other, which is no part of the state"),
    ("del Box.value", "changed Box.value, which is no part of the state"),
    ("type(self).other = 1", "changed P.other, which is no part of the state"),
    ("Protocol.other = 1", "changed Protocol.other, which is no part of the state"),
    ("Kind.A.seen = 1", "changed Kind.A, which is no part of the state"),
    ("inner()", "changed made.<locals>.inner.held, which is no part of the state"),
    ("remembers()", "changed a default of remembers, which is no part of the state"),
    ("remembers.calls = 1", "changed remembers.calls, which is no part of the state"),
    ("helper.total += 1", "changed helper.total, which is no part of the state"),
    ("helper.Deep.values.append(1)", "changed Deep.values, which is no part of the state"),
    ("vars(self)['_constants']['limit'] = 1", "changed P.limit, which is no part of the state"),
    ("self.constants['limit'] = 1", "raised TypeError: 'mappingproxy' object does not support item assignment"),
    ("self.n = hash('a') % 2", "read a hash, which may be another one in every process (hash at p.py:LINE)"),
    ("self.n = id(box) % 2", "read an address (id at p.py:LINE)"),
    ("users.append(1); self.n = len(users)", "did something else when it was run again in the same state"),
    ("log.append(1); require(False)", "changed log, which is no part of the state"),
]

ALLOWED = [
    "import csv, decimal, zipfile",
    "logging.getLogger('p').debug('here')",
    "logging.getLogger('p').info('here')",
    "cached(self.n)",
    "uuid.uuid5(uuid.NAMESPACE_DNS, 'a')",
    "datetime.date(2021, 12, 1)",
    "sorted({3, 1}, key=lambda x: -x)",
    "self.n = one_of((0, 1))",
    "local = []; local.append(1)",
    "collections.Counter('abc').most_common()",
    "{Key(1), Key(2)}",
    "import beside",
]


def write(tmp_path: Path, body: str) -> str:
    (tmp_path / "helper.py").write_text("total = 0\nclass Deep:\n    values = []\n")
    (tmp_path / "beside.py").write_text("found = []\n")
    for name in ("helper", "beside"):
        sys.modules.pop(name, None)
    (tmp_path / "p.py").write_text(PROTOCOL.replace("{body}", body))
    return "p.py"


@pytest.mark.parametrize(("body", "said"), FORBIDDEN, ids=[body for body, _ in FORBIDDEN])
def test_what_depends_on_more_than_the_state_is_told_in_one_line(
    here: Run, tmp_path: Path, body: str, said: str
) -> None:
    ran = here("check", write(tmp_path, body), "--checking", "--engine", "reference")
    assert ran.code == 75, ran
    assert ran.complaint.startswith("action tick(who='a') " + said.replace("LINE", str(LINE))), ran.complaint


@pytest.mark.parametrize("body", ALLOWED)
def test_what_follows_from_the_state_is_left_alone(here: Run, tmp_path: Path, body: str) -> None:
    ran = here("check", write(tmp_path, body), "--checking", "--engine", "reference")
    assert (ran.code, ran.err) == (0, "")


def test_the_compiled_engine_watches_as_well(here: Run, tmp_path: Path) -> None:
    pytest.importorskip("numba")
    ran = here("check", write(tmp_path, "time.time()"), "--checking", "--workers", "1")
    assert ran.code == 75
    assert "read the clock (time.time" in ran.complaint


def test_without_checking_nobody_watches(here: Run, tmp_path: Path) -> None:
    assert here("check", write(tmp_path, "time.time()"), "--engine", "reference").code == 0


def test_without_checking_what_differs_is_told_nevertheless(here: Run, tmp_path: Path) -> None:
    ran = here("check", write(tmp_path, "self.n = -next(counter)"), "--engine", "reference")
    assert ran.code == 75
    assert ran.complaint == (
        "action tick(who='a') did something else when it was run again in the same state: n became 1 the first time and"
        " 0 the second. It depends on more than the state; run with --checking to find out on what"
    )


def test_swallowing_the_complaint_does_not_help(here: Run, tmp_path: Path) -> None:
    swallow = "try:\n            time.time()\n        except Exception:\n            pass"
    ran = here("check", write(tmp_path, swallow), "--checking", "--engine", "reference")
    assert ran.code == 75
    assert "read the clock (time.time" in ran.complaint


def test_an_invariant_is_watched_too(here: Run, tmp_path: Path) -> None:
    text = COUNTER + "    @invariant\n    def soon(self):\n        import time\n        return time.time() > 0\n"
    (tmp_path / "p.py").write_text(text)
    ran = here("check", "p.py", "--checking", "--engine", "reference")
    assert ran.code == 75
    assert ran.complaint.startswith("invariant soon read the clock (time.time at p.py:")


def test_numpy_is_watched_if_it_is_there(here: Run, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    for body in ("numpy.random.rand()", "numpy.random.shuffle([1, 2])"):
        ran = here(
            "check", write(tmp_path, "import numpy, numpy.random; " + body), "--checking", "--engine", "reference"
        )
        assert ran.code == 75, ran
        assert "read a random number (numpy.random)" in ran.complaint


def test_a_profiler_that_was_there_before_is_there_afterwards() -> None:
    class Ticker(Protocol):
        n: int = state(0)

        @action
        def tick(self) -> None:
            self.n = 1

    calls: list[str] = []

    def mine(frame: object, event: str, subject: object) -> None:
        calls.append(event)

    stepper = Stepper(Ticker(), checking=True)
    start = stepper.initial_states()[0]
    sys.setprofile(mine)
    try:
        stepper.outcomes(stepper.of_kind("action")[0], start.ids)
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(None)


def test_checking_finds_the_same_states(here: Run) -> None:
    told = [
        here("check", "counter.py", "-D", "limit=4", "--engine", "reference", *extra).out
        for extra in ((), ("--checking",))
    ]
    assert "HOLDS" in told[0]
    numbers = [[line.split()[:3] for line in text.splitlines() if "states" in line] for text in told]
    assert numbers[0] == numbers[1]


SEEDED = """
import enum
from fencepost import *

class Color(enum.Enum):
    RED, GREEN, BLUE, WHITE = 1, 2, 3, 4

class Thing:
    def at(self):
        return 3

THING = Thing()

class Hashed:
    def __init__(self, text): self.text = text
    def __hash__(self): return hash(self.text)

class P(Protocol):
    n: int = state(0)
    seen: object = state(0)

    @initial
    def begins(self):
        {initial}

    @action(k=(1, 2))
    def tick(self, k):
        require(self.n < 4)
        self.n += 1
        if self.n == 3:
            {action}

    @invariant
    def fine(self):
        return {invariant}
"""
NAMES = "{'ann', 'bob', 'cid', 'dan', 'eve', 'fay', 'gus', 'hal'}"


@pytest.mark.parametrize(
    ("where", "body"),
    [
        ("action", f"self.seen = tuple({NAMES})"),
        ("invariant", f"tuple({NAMES})[self.n] < 'e'"),
        ("initial", f"self.seen = tuple({NAMES})"),
        *campaign_if(
            bool,
            [
                ("action", f"self.seen = next(iter({NAMES}))"),
                ("action", f"self.seen = one_of(list({NAMES})[:3])"),
                ("action", "self.seen = list(set(Color))[0]"),
                ("action", "self.seen = Hashed('a').__hash__()"),
                ("action", "self.seen = repr(THING)"),
                ("action", "self.seen = f'{THING.at}'"),
            ],
        ),
    ],
)
def test_what_depends_on_the_hash_seed_is_told(here: Run, tmp_path: Path, where: str, body: str) -> None:
    bodies = {"initial": "self.seen = one_of((7, 8))", "action": "pass", "invariant": "True", where: body}
    text = SEEDED
    for name, given in bodies.items():
        text = text.replace("{" + name + "}", given)
    (tmp_path / "p.py").write_text(text)
    ran = here("check", "p.py", "--checking", "--engine", "reference")
    assert ran.code == 75, ran
    who = {"action": "action tick(k=1)", "invariant": "invariant fine", "initial": "the initial state"}[where]
    assert ran.complaint.startswith(f"{who} comes to something else in another process"), ran.complaint
    if where == "action":
        assert len([line for line in ran.out.splitlines() if "tick(k=" in line]) >= 3


@pytest.mark.parametrize(
    "body",
    [
        "self.seen = one_of({'ann', 'bob', 'cid'})",
        "print('here')",
        *campaign_if(
            bool,
            [
                "self.seen = frozenset({'ann', 'bob', 'cid'})",
                "self.seen = len({'ann', 'bob'})",
                "self.seen = canonical({'ann', 'bob', 'cid'})[0]",
                "self.seen = tuple(sorted({'ann', 'bob'}))",
            ],
        ),
    ],
)
def test_what_does_not_depend_on_the_hash_seed_is_left_alone(here: Run, tmp_path: Path, body: str) -> None:
    text = SEEDED.replace("{initial}", "pass").replace("{action}", body).replace("{invariant}", "True")
    (tmp_path / "p.py").write_text(text)
    ran = here("check", "p.py", "--checking", "--engine", "reference")
    assert ran.code == 0 and set(ran.err.splitlines()) <= {"here"}


def test_a_script_that_checks_while_it_is_imported_starts_no_processes_without_end(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from fencepost import Protocol, action, check, require, state\n"
        "class Tick(Protocol):\n    n: int = state(0)\n    @action\n    def tick(self) -> None:\n"
        "        require(self.n < 2)\n        self.n += 1\n"
        "open('runs', 'a').write('+')\nprint(check(Tick(), checking=True).verdict)\n"
    )
    ran = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "holds\n", "")
    # Once, and once in each of the processes with other hash seeds.
    assert len((tmp_path / "runs").read_text()) <= 1 + 4
