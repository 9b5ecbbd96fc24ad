"""Ctrl-C while the command line starts and ends, where nobody can catch it: one line and an exit code in place of a
traceback. However often it is pressed, it is told once. And SIGTERM to a command that serves, ahead of its own handler.

The package takes a tenth of a second to import, so this module is the first that it imports, and hardly imports
anything itself. A process that only uses the package is left as it is.
"""

import os
import signal
import sys

EXIT_CODE = 130

_told = False
"""Whether the command has said that it was interrupted."""

_is_registered = False
"""Whether Python will call :func:`_end_last`."""


def is_command_line() -> bool:
    """Whether this process was started as ``fencepost`` or as ``python -m fencepost``."""
    called: str = (getattr(sys, "argv", None) or [""])[0]
    if called == "-m":  # as long as Python looks for the module
        return "-mfencepost" in sys.orig_argv or ["-m", "fencepost"] in [
            sys.orig_argv[n : n + 2] for n in range(len(sys.orig_argv))
        ]
    return os.path.basename(called) == "fencepost" or called == os.path.join(
        os.path.dirname(os.path.dirname(__file__)), "__main__.py"
    )


def end_process() -> None:
    """From now on Ctrl-C ends the process at once, if it is the command line."""
    if is_command_line() and (_told or signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        signal.signal(signal.SIGINT, _end)
        global _is_registered
        if not _is_registered:
            import atexit  # not before

            _is_registered = True
            atexit.register(_end_last)  # among the first to be registered, and so among the last to be called


def end_at_term() -> None:
    """Until it has a handler of its own, SIGTERM ends a command that serves at once and as asked, with exit code 0: it
    has not begun anything. A parent may have it ignored, and then it is.
    """
    if is_command_line() and _serves(sys.argv[1:]) and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end_as_asked)


def _serves(given: "list[str]") -> bool:
    return given[:1] in (["bookie"], ["metadata"], ["autorecovery"]) and not VERBS.intersection(given[1:])


VERBS = frozenset(
    ("inspect", "cookie", "recover", "decommission", "list", "status", "enable", "disable", "--help", "-h")
)
"""The words with which these commands serve nothing."""


def _end_as_asked(number: object, frame: object) -> None:
    os._exit(0)


def told() -> None:
    """The command says that it was interrupted: Ctrl-C is ignored until that is said."""
    global _told
    if is_command_line():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _told = True


def interrupt() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        sys.unraisablehook = _try_again
        signal.signal(signal.SIGINT, signal.default_int_handler)


def was_interrupted(error: "BaseException | None") -> bool:
    """Whether an error is what somebody's library made of Ctrl-C, while it was imported say."""
    from fencepost.errors import FencepostError

    while error is not None and not isinstance(error, (KeyboardInterrupt, FencepostError)):
        error = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt)


def _try_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Python drops an exception that is raised in a callback of its own, while it collects garbage say. Ctrl-C then
    comes once more.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        from _thread import interrupt_main
        from threading import Timer

        Timer(0.01, interrupt_main).start()
    else:
        sys.__unraisablehook__(unraisable)


def _end(number: object, frame: object) -> None:
    try:
        if not _told:
            os.write(2, b"fencepost: interrupted\n")
    except OSError:
        pass
    os._exit(EXIT_CODE)


def _end_last() -> None:
    """Nothing is left to do but what Python does when it ends, for which it takes its handlers away. After a Ctrl-C
    that came while it executed code from a string it would then end itself by the signal, although that was caught.
    """
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if _told:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):  # nobody reads it any more, or there is none
                pass
        os._exit(EXIT_CODE)
