"""The protocols whose rules are changed: their modules, and the simulator that runs the same rules."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STORE_RULES = tuple(
    f"fencepost.ledger.rules.{name}" for name in ("adding", "ensembles", "metadata", "reading", "recovery")
)
BOOT_RULES = tuple(f"fencepost.ledger.rules.{name}" for name in ("boot", "cookies", "replication"))


@dataclass(frozen=True)
class Subject:
    """A protocol under change. ``modules``: where its rules are; the first has the protocol, and what others of them
    have is what roles run. ``first``: the configurations that look at every mutant, in this order: few and quick, they
    take all actions; the others look at what these do not notice. ``simulator``: who runs those rules, ``store``,
    ``quorum`` or ``log``.
    """

    name: str
    modules: tuple[str, ...]
    first: tuple[str, ...]
    simulator: str = ""
    profiles: tuple[str, ...] = ()

    def sources(self) -> list[tuple[str, str]]:
        """The modules with their text."""
        return [(module, path_of(module).read_text()) for module in self.modules]


def path_of(module: str) -> Path:
    """The file of a module, which is not imported."""
    parts = module.split(".")
    top = importlib.util.find_spec(parts[0])
    assert top is not None and top.origin is not None
    return Path(top.origin).parent.joinpath(*parts[1:]).with_suffix(".py")


SUBJECTS: dict[str, Subject] = {
    subject.name: subject
    for subject in (
        Subject("ledger-chaining", ("fencepost.protocols.ledger_chaining",), ("small", "as-the-log")),
        Subject(
            "bookkeeper-4.13",
            ("fencepost.protocols.bookkeeper.v4_13",),
            ("defect-1-small", "defect-2", "small", "three-copies", "two-entries"),
        ),
        Subject(
            "bookkeeper",
            ("fencepost.protocols.bookkeeper.current", "fencepost.protocols.bookkeeper.ledger"),
            (
                "fragments-at-once",
                "one-copy",
                "reads-without-fencing-by-delay",
                "reader@14",
                "reader-of-two-entries",
                "any-stripes",
                "as-the-store",
            ),
        ),
        Subject(
            "bookkeeper-limbo",
            ("fencepost.protocols.bookkeeper.limbo",),
            (
                "two-entries",
                "scenario-1",
                "scenario-2",
                "without-limbo",
                "without-fencing",
                "protected",
                "three-bookies",
                "two-entries-recovered@18",
            ),
        ),
        Subject(
            "bookkeeper-boot",
            ("fencepost.protocols.bookkeeper.boot",),
            (
                "one-confirmation",
                "small",
                "fenced-once-more",
                "with-the-journal",
                "new-bookie",
                "nothing-to-forget",
                "as-the-store",
                "scenario-1",
                "too-many-crashes",
            ),
        ),
        Subject(
            "log",
            ("fencepost.protocols.log.log", "fencepost.log.rules"),
            (
                "lost-answers",
                "late-batches",
                "unanswered-batches",
                "seals-unanswered",
                "taken-for-done",
                "late-updates",
            ),
            "log",
        ),
        Subject(
            "log-leader",
            ("fencepost.protocols.log.leader", "fencepost.log.roles.leader"),
            (
                "trouble-later",
                "one-client",
                "trims-while-rolling",
                "full",
                "old",
                "refusals",
                "deleted-at-the-end",
                "tried-again",
                "ends",
                "trims",
                "deleted",
                "seals",
                "trouble",
                "lost-answers",
            ),
            "log",
        ),
        Subject(
            "quorum",
            ("fencepost.protocols.quorum.quorum", "fencepost.quorum.rules", "fencepost.quorum.transitions"),
            (
                "parted",
                "parted-again",
                "pre-votes",
                "removal",
                "removal-restart",
                "restart",
                "undisturbed",
                "removed-leader-stays",
                "three-epochs@14",
                "removal-at-any-time@12",
            ),
            "quorum",
        ),
        Subject(
            "kraft-kip-853",
            ("fencepost.protocols.kraft.kip_853", "fencepost.protocols.kraft.server"),
            (
                "small",
                "parted",
                "parted-again",
                "removed-follower",
                "removed-follower-ignored",
                "undisturbed",
                "addition@12",
                "observers",
                "restart-with-reasons",
                "cuts",
                "cuts-pair-by-pair",
                "cuts-and-elections",
                "addition-after-election",
            ),
        ),
        Subject(
            "kraft-kip-853-join",
            ("fencepost.protocols.kraft.join",),
            ("leave", "join-liveness", "add-liveness", "leave-lost", "add-lost"),
        ),
        Subject(
            "store",
            ("fencepost.protocols.store.store", *STORE_RULES),
            (
                "at-once",
                "marks-again",
                "reads-ahead",
                "unconditional-updates",
                "lac-runs-ahead",
                "one-of-two",
                "reader-of-two-entries",
                "lost-answers",
                "overtaken",
                "two-entries@12",
            ),
            "store",
            ("everything", "races"),
        ),
        Subject(
            "booting-store",
            ("fencepost.protocols.store.booting", *BOOT_RULES),
            ("one-bookie", "boot-without-limbo", "limbo-denies", "note-lost", "reader", "any-order@9"),
            "store",
            ("no-journal",),
        ),
    )
}
"""By the names of the protocols, the quickest first. Those that are not here only follow traces."""


def of(names: Sequence[str]) -> list[Subject]:
    """These protocols, or all."""
    return [SUBJECTS[name] for name in names or SUBJECTS]
