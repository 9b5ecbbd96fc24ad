"""Verdicts as a report of tests in JUnit's format, which systems of continuous integration show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

FAILURE, ERROR, SKIPPED = "failure", "error", "skipped"
"""What may have become of a test that has not passed: what it tests is wrong, or it could not tell, or it has not
ended.
"""

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that XML 1.0 cannot hold."""


@dataclass(frozen=True)
class Case:
    """One test. ``became``: "" if it has passed. ``message`` says why not in a line, and ``story`` in full."""

    name: str
    became: str = ""
    message: str = ""
    story: str = ""


def junit(suite: str, cases: Sequence[Case], properties: Mapping[str, str], seconds: float) -> str:
    """The report of one suite, which took ``seconds``. It satisfies ``junit-10.xsd`` of Jenkins' xUnit plugin."""
    counted = Counter(case.became for case in cases)
    took = {"time": f"{seconds:.3f}"}
    counts = {"tests": str(len(cases)), "failures": str(counted[FAILURE]), "errors": str(counted[ERROR])}
    root = ElementTree.Element("testsuites", counts | took)
    skipped = {"skipped": str(counted[SKIPPED])}
    whole = ElementTree.SubElement(root, "testsuite", {"name": _xml(suite)} | counts | skipped | took)
    if properties:
        listed = ElementTree.SubElement(whole, "properties")
        for name, value in properties.items():
            ElementTree.SubElement(listed, "property", {"name": _xml(name), "value": _xml(value)})
    for case in cases:
        # Traces are validated together: the time of one is not known.
        named = {"classname": _xml(suite), "name": _xml(case.name)} | (took if len(cases) == 1 else {})
        test = ElementTree.SubElement(whole, "testcase", named)
        if case.became:
            why = {"message": _xml(case.message)} | ({} if case.became == SKIPPED else {"type": case.became})
            ElementTree.SubElement(test, case.became, why).text = _xml(case.story)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    return _NOT_XML.sub(lambda found: repr(found[0])[1:-1], text)
