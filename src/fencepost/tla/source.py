"""The text of a file: its lines, its modules and its comments.

The parser sees a text in which comments and everything outside modules are blank. So a stray quotation mark in the text
around a module means nothing, and neither does an algorithm in a comment.
"""

from __future__ import annotations

import linecache
import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from fencepost.tla.ast import Place
from fencepost.tla.errors import SpecificationError

_TAB = 8
"""SANY's width of a tab, which decides whether two bullets stand below each other."""

_BEGIN = re.compile(r"-{4,} *MODULE\b")
_LEXEME = re.compile(
    r"(?P<line>\\\*[^\n]*)|(?P<block>\(\*)"
    r'|(?P<string>"(?:[^"\\\n]|\\[^\n])*")|(?P<open>")'
    r"|(?P<begin>-{4,} *MODULE\b)|(?P<end>={4,})"
)
_NEWLINE = re.compile("\n")
_COMMENT_MARK = re.compile(r"\(\*|\*\)")
_VISIBLE = re.compile(r"[^\n\t]")
_LINE_MARK = re.compile(r"^\s*\\\*+ ?")
_BLOCK_MARKS = re.compile(r"^\s*\(?\*+\)?|\*+\)?\s*$")
_RULER = re.compile(r"[-=~_#*+\s]*")


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment that has its lines for itself."""

    line: int
    end_line: int
    text: str


class Lines:
    """The text of a file, and the places in it. Messages and tracebacks can show its lines.

    Each line ends with a newline character, whichever way the file ends it. Raises ``error`` if the file is not UTF-8.
    """

    def __init__(self, content: bytes, file: str, error: type[SpecificationError] = SpecificationError) -> None:
        self.text = text = _decoded(content, file, error)
        self.file = file
        self._error = error
        self._starts = [0, *(match.end() for match in _NEWLINE.finditer(text))]
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)

    def place(self, start: int, end: int) -> Place:
        """The place of the characters from offset ``start`` to before ``end``."""
        return Place(self.file, *self._position(start), *self._position(max(start, end - 1)))

    def end(self) -> Place:
        """The place of the last character that is not blank."""
        end = len(self.text.rstrip())
        return self.place(max(0, end - 1), end)

    def _position(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def end_of_comment(self, start: int) -> int:
        """The offset behind a comment ``(* ... *)``, which may nest. Raises ``error`` if it has no end."""
        depth, at = 1, start + 2
        while depth:
            mark = _COMMENT_MARK.search(self.text, at)
            if mark is None:
                raise self._error("this comment has no end *)", self.place(start, start + 2))
            depth += 1 if mark.group() == "(*" else -1
            at = mark.end()
        return at


class Source:
    """A file with modules.

    Raises :class:`SpecificationError` if the file is not UTF-8, if it has no module, or if a string or a comment in a
    module has no end.
    """

    def __init__(self, content: bytes, file: str) -> None:
        self.file = file
        self._places = Lines(content, file)
        self.text = self._places.text
        self.lines = self.text.split("\n")
        self._blank: list[tuple[int, int]] = []
        self._comments: list[tuple[int, int]] = []
        self._scan()
        self._code = self._without_blanks().split("\n")
        self._code_lines = [line.expandtabs(_TAB).encode() for line in self._code]
        self._wide = {row for row, line in enumerate(self._code) if "\t" in line or not line.isascii()}
        self._maps: dict[int, list[int]] = {}

    @property
    def code(self) -> bytes:
        """What the parser sees. It has the same lines; where a line has tabs, its columns are not the file's."""
        return b"\n".join(self._code_lines)

    @cached_property
    def rows(self) -> list[str]:
        """The lines of `code`."""
        return [line.decode() for line in self._code_lines]

    def place_in_row(self, row: int, start: int, end: int) -> Place:
        """The place of the characters from ``start`` to before ``end`` in one of `rows`."""
        line = self.rows[row]
        first, last = (self.column(row, len(line[:each].encode())) for each in (start, end))
        return Place(self.file, row + 1, first + 1, row + 1, last)

    def end_of(self, row: int, byte: int) -> tuple[int, int]:
        """The end of what ends before a byte of a line of `code`, blanks left out."""
        while not (ended := self._code_lines[row][:byte].rstrip()) and row:
            row, byte = row - 1, len(self._code_lines[row - 1])
        return row, len(ended)

    def column(self, row: int, byte: int) -> int:
        """The column in the file, from 0, of a byte of a line of `code`."""
        if row not in self._wide:
            return byte
        if row not in self._maps:
            self._maps[row] = _column_of_each_byte(self._code[row])
        return self._maps[row][byte]

    def place(self, start: int, end: int) -> Place:
        """The place of the characters from offset ``start`` to before ``end``."""
        return self._places.place(start, end)

    # -- modules and comments ------------------------------------------------------------------------------------------

    def _scan(self) -> None:
        at = 0
        while begin := _BEGIN.search(self.text, at):
            self._blank.append((at, begin.start()))
            at = self._end_of_module(begin.end())
        if not at:
            raise SpecificationError("no module is here: it begins with ---- MODULE name ----", self.place(0, 1))
        self._blank.append((at, len(self.text)))

    def _end_of_module(self, at: int) -> int:
        depth = 1
        while depth and (lexeme := _LEXEME.search(self.text, at)):
            at = self._end_of_comment(lexeme) if lexeme.lastgroup in ("line", "block") else lexeme.end()
            depth += (lexeme.lastgroup == "begin") - (lexeme.lastgroup == "end")
            if lexeme.lastgroup == "open":
                raise SpecificationError("this string has no end", self.place(lexeme.start(), lexeme.end()))
        return len(self.text) if depth else at

    def _end_of_comment(self, lexeme: re.Match[str]) -> int:
        end = lexeme.end() if lexeme.lastgroup == "line" else self._places.end_of_comment(lexeme.start())
        self._blank.append((lexeme.start(), end))
        self._comments.append((lexeme.start(), end))
        return end

    def _without_blanks(self) -> str:
        pieces, at = [], 0
        for start, end in self._blank:
            pieces += [self.text[at:start], _VISIBLE.sub(" ", self.text[start:end])]
            at = end
        return "".join([*pieces, self.text[at:]])

    # -- comments ------------------------------------------------------------------------------------------------------

    def comment_above(self, line: int) -> str:
        """What the comments directly above a line say, without their marks and frames. A blank line of a comment
        separates paragraphs.
        """
        found: list[str] = []
        while comment := self._last_lines.get(line - 1):
            found.append(comment.text)
            line = comment.line
        return _paragraphs([text for comment in reversed(found) for text in _lines_of_comment(comment)])

    @cached_property
    def _last_lines(self) -> dict[int, Comment]:
        comments = (self._alone(start, end) for start, end in self._comments)
        return {comment.end_line: comment for comment in comments if comment}

    def _alone(self, start: int, end: int) -> Comment | None:
        place = self.place(start, end)
        rows = self._code[place.line - 1 : place.end_line]
        return None if any(row.strip() for row in rows) else Comment(place.line, place.end_line, self.text[start:end])


def _decoded(content: bytes, file: str, error: type[SpecificationError]) -> str:
    try:
        return content.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as bad:
        before = content[: bad.start].decode().splitlines() or [""]
        place = Place(file, len(before), len(before[-1]) + 1, len(before), len(before[-1]) + 1)
        raise error(f"the byte 0x{content[bad.start]:02x} is not UTF-8", place) from bad


def _column_of_each_byte(line: str) -> list[int]:
    columns: list[int] = []
    width = 0
    for column, character in enumerate(line):
        wide = _TAB - width % _TAB if character == "\t" else 1
        columns += [column] * (wide if character == "\t" else len(character.encode()))
        width += wide
    return [*columns, len(line)]


def _lines_of_comment(text: str) -> list[str]:
    if text.startswith("\\*"):
        return [_LINE_MARK.sub("", text).strip()]
    return [_BLOCK_MARKS.sub("", line).strip() for line in text.split("\n")]


def _paragraphs(lines: list[str]) -> str:
    joined = "\n".join("" if _RULER.fullmatch(line) else line for line in lines)
    return "\n\n".join(" ".join(each.split("\n")) for each in re.split(r"\n{2,}", joined.strip("\n")))
