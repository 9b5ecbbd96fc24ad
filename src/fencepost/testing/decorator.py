"""``@fencepost.checked``: a test that checks a protocol."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fencepost.api.check import check
from fencepost.api.result import Result, Unexpected
from fencepost.language.loading import expectation, find
from fencepost.language.protocol import Protocol
from fencepost.language.seam import Model

Test = TypeVar("Test", bound=Callable[..., Any])

CHECK, CONFIG = "fencepost_check", "fencepost_config"
"""The fixtures of a test that checks a protocol."""


@dataclass(frozen=True)
class Checked:
    """What a test checks."""

    protocol: Model | type[Protocol] | str
    config: str | Sequence[str] | None
    options: Mapping[str, Any]

    @property
    def configs(self) -> list[str | None]:
        """The configurations: those that are named, or else all that the protocol has."""
        if isinstance(self.config, str):
            return [self.config]
        if self.config is not None:
            return list(self.config)
        if isinstance(self.protocol, Model):
            return [None]
        found: Any = find(self.protocol) if isinstance(self.protocol, str) else self.protocol
        return list(getattr(found, "configurations", ())) or [None]


def checked(
    protocol: Model | type[Protocol] | str, *, config: str | Sequence[str] | None = None, **options: Any
) -> Callable[[Test], Test]:
    """Make a test that checks a protocol, once for each of its configurations.

        @fencepost.checked(LockServer)
        def test_lock_server(result):
            assert result.distinct_states == 22

    Each check must end with the verdict that its configuration expects, or hold if it expects none. Then the function
    runs. It gets the :class:`fencepost.Result` if it has a parameter ``result``; the others are fixtures of pytest.

    ``config``: a configuration, or several. The options are those of :func:`fencepost.check`. pytest needs the plugin
    of Fencepost, which comes with it.
    """

    def decorate(test: Test) -> Test:
        given = inspect.signature(test)

        @functools.wraps(test)
        def run(*values: Any, **fixtures: Any) -> Any:
            result = fixtures.pop(CHECK)(protocol, fixtures.pop(CONFIG), **options)
            if "result" in given.parameters:
                fixtures["result"] = result
            return test(*values, **fixtures)

        own = [parameter for name, parameter in given.parameters.items() if name != "result"]
        asked = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in (CHECK, CONFIG)]
        run.__signature__ = given.replace(parameters=[*own, *asked])  # type: ignore[attr-defined]
        run.fencepost = Checked(protocol, config, options)  # type: ignore[attr-defined]
        return run  # type: ignore[return-value]

    return decorate


def as_expected(
    protocol: Model | type[Protocol] | str,
    config: str | None = None,
    finished: Callable[[Result], None] = lambda result: None,
    **options: Any,
) -> Result:
    """Check a protocol in a configuration. Raises :class:`Unexpected` if the verdict is another one than it expects.
    ``finished``: looks at a result that is not complete.
    """
    result = check(protocol, configuration=config, **options)
    wanted = (expectation(result.protocol, config) if config is not None else None) or "holds"
    if result.verdict == wanted:
        return result
    if result.verdict == "not complete":
        finished(result)
    if wanted == "holds":
        raise Unexpected(str(result), result.to_html)
    raise Unexpected(f"NOT as expected: {config} is to violate {wanted}.\n\n{result}", result.to_html)
