"""The modules that reach outside a specification: Json, IOUtils and CSV.

A file of JSON or of text and the environment can be read, which is how a specification follows the trace of a system.
What is read counts as part of the specification (:attr:`fencepost.tla.configured.Setup.outside`). Nothing is written,
and no command is run.
"""

from __future__ import annotations

import json
import os
from typing import Any

import msgspec

from fencepost.files import regular
from fencepost.language.values import ModelValue
from fencepost.tla.library.definitions import Module, integer
from fencepost.tla.values import (
    EvaluationError,
    FunctionValue,
    Sequence,
    SetValue,
    Value,
    function,
    record,
    show,
    shown,
)

# -- Json --------------------------------------------------------------------------------------------------------------

JSON = Module("Json")
JSON.refuse("a specification writes no files", JsonSerialize=2, ndJsonSerialize=2)


@JSON.operator("ndJsonDeserialize", reads_outside=True)
def lines_from_json(file: Value) -> Sequence:
    lines = enumerate(_content(file).splitlines(), 1)
    return Sequence([_value_of(line, f"line {number} of {file}") for number, line in lines if line.strip()])


@JSON.operator("JsonDeserialize", reads_outside=True)
def from_json(file: Value) -> Value:
    return _value_of(_content(file), str(file))


def _content(file: Value) -> bytes:
    if type(file) is not str:
        raise EvaluationError(f"{shown(file)} is not the name of a file")
    try:
        return regular.content(file)
    except OSError as error:
        raise EvaluationError(f"{file} cannot be read: {error.strerror or error}") from None


def _value_of(text: bytes, where: str) -> Value:
    try:
        return _as_value(msgspec.json.decode(text))
    except (msgspec.DecodeError, OverflowError, RecursionError, EvaluationError) as error:
        raise EvaluationError(f"{where} is no value: {error}") from None


def _as_value(plain: Any) -> Value:
    match plain:
        case dict():
            return function({name: _as_value(each) for name, each in plain.items()})
        case list():
            return Sequence(map(_as_value, plain))
        case None:
            raise EvaluationError("TLA+ has no null")
        case float():
            return int(plain)  # as in TLC, without its fraction
        case _:
            return plain


@JSON.operator("ToJson", "ToJsonArray")
def to_json(value: Value) -> str:
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)


@JSON.operator("ToJsonObject")
def to_json_object(value: Value) -> str:
    whole = value.explicit() if isinstance(value, FunctionValue) else value
    if isinstance(whole, Sequence):
        numbered = {str(place): _plain(each) for place, each in enumerate(whole.values)}
        return json.dumps(numbered, separators=(",", ":"), ensure_ascii=False)
    return to_json(value)


def _plain(value: Value) -> Any:
    if isinstance(value, SetValue):
        return [_plain(each) for each in value.members()]
    if isinstance(value, FunctionValue):
        whole = value.explicit()
        if isinstance(whole, Sequence) and whole.values:
            return [_plain(each) for each in whole.values]
        return {_name(argument): _plain(each) for argument, each in whole.items()} if whole.size() else []
    return value.name if isinstance(value, ModelValue) else value


def _name(argument: Value) -> str:
    return argument if type(argument) is str else show(argument)


# -- files, commands and the environment -------------------------------------------------------------------------------

_FILES = "a specification writes no files, and reads only JSON and text"

CSV = Module("CSV")
CSV.refuse(_FILES, CSVWrite=3, CSVWriteRecord=4, CSVRead=3, CSVRecords=1)

IO_UTILS = Module("IOUtils")
IO_UTILS.refuse(_FILES, IOSerialize=3, IODeserialize=2, Serialize=3)
IO_UTILS.refuse("a specification runs no commands", IOExec=1, IOEnvExec=2, IOExecTemplate=2, IOEnvExecTemplate=3)


@IO_UTILS.operator("Deserialize", reads_outside=True)
def text_of_file(file: Value, options: Value) -> Value:
    """A file of text, as TLC gives it: what a command would have printed. A file that cannot be read is an error here,
    where TLC says so with a value.
    """
    wanted = dict(options.explicit().items()) if isinstance(options, FunctionValue) else {}
    if wanted.get("format") != "TXT":
        raise EvaluationError(f'Deserialize reads text, with [format |-> "TXT"], and not {shown(options)}')
    try:
        text = _content(file).decode(str(wanted.get("charset", "UTF-8")))
    except (LookupError, UnicodeError) as error:
        raise EvaluationError(f"{file} is no text: {error}") from None
    return record(exitValue=0, stdout=text, stderr="")


@IO_UTILS.operator("IOEnv", reads_outside=True)
def environment() -> Value:
    return record(**os.environ)


@IO_UTILS.operator("atoi")
def to_integer(text: Value) -> int:
    try:
        return int(text) if type(text) is str else integer(text, "atoi")
    except ValueError:
        raise EvaluationError(f"atoi: {shown(text)} is not a number") from None


@IO_UTILS.operator("zeroPadN")
def padded(value: Value, width: Value) -> str:
    return show(value).rjust(integer(width, "zeroPadN"), "0")
