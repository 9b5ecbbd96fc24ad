"""Ctrl-C while the command line starts and ends, when no code can catch it: one line and an exit code instead of a
traceback. It is reported once, however often it is pressed. Also SIGTERM to a server command before it has a handler.

The package takes a tenth of a second to import, so it imports this module first, and this module imports little. The
signal handlers of a process that only uses the package stay unchanged.
"""

import os
import signal
import sys

EXIT_CODE = 130

_is_reported = False
"""Whether the interrupt has been reported."""

_is_registered = False
"""Whether Python will call :func:`_end_last`."""


def is_command_line() -> bool:
    """Whether this process was started as ``fencepost`` or as ``python -m fencepost``."""
    called: str = (getattr(sys, "argv", None) or [""])[0]
    if called == "-m":  # while Python looks for the module
        return "-mfencepost" in sys.orig_argv or ["-m", "fencepost"] in [
            sys.orig_argv[n : n + 2] for n in range(len(sys.orig_argv))
        ]
    return os.path.basename(called).removesuffix(".exe") == "fencepost" or called == os.path.join(
        os.path.dirname(os.path.dirname(__file__)), "__main__.py"
    )


def end_process() -> None:
    """Make Ctrl-C end the process at once, if it is the command line."""
    if is_command_line() and (_is_reported or signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        signal.signal(signal.SIGINT, _end)
        global _is_registered
        if not _is_registered:
            import atexit  # only when needed

            _is_registered = True
            atexit.register(_end_last)  # registered early, so called late


def end_at_term() -> None:
    """Make SIGTERM end a server command with exit code 0 until it installs its own handler: it has not begun any work.
    If the parent process had SIGTERM ignored, it stays ignored.
    """
    if is_command_line() and _serves(sys.argv[1:]) and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end_as_asked)


def _serves(words: "list[str]") -> bool:
    return words[:1] in (["bookie"], ["metadata"], ["autorecovery"]) and not VERBS.intersection(words[1:])


VERBS = frozenset("inspect cookie recover decommission safe-to-stop rack list status enable disable --help -h".split())
"""With these words the server commands do not serve."""


def _end_as_asked(number: object, frame: object) -> None:
    os._exit(0)


def reported() -> None:
    """Called before the command reports that it was interrupted. Ignores Ctrl-C meanwhile."""
    global _is_reported
    if is_command_line():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _is_reported = True


def interrupt() -> None:
    """Make Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        sys.unraisablehook = _try_again
        signal.signal(signal.SIGINT, signal.default_int_handler)


def was_interrupted(error: "BaseException | None") -> bool:
    """Whether an error was caused by Ctrl-C, for instance because a library wrapped KeyboardInterrupt during import."""
    from fencepost.errors import FencepostError

    while error is not None and not isinstance(error, (KeyboardInterrupt, FencepostError)):
        error = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt)


def _try_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Raise a KeyboardInterrupt again if Python dropped it. Python drops exceptions of its callbacks, such as those of
    garbage collection.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        from _thread import interrupt_main
        from threading import Timer

        Timer(0.01, interrupt_main).start()
    else:
        sys.__unraisablehook__(unraisable)


def _end(number: object, frame: object) -> None:
    try:
        if not _is_reported:
            os.write(2, b"fencepost: interrupted\n")
    except OSError:
        pass
    os._exit(EXIT_CODE)


def _end_last() -> None:
    """Runs just before Python's own shutdown, which removes its signal handlers. After a Ctrl-C during the execution of
    code from a string, Python would then kill itself by the signal although the exception was caught.
    """
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if _is_reported:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):  # the stream is closed, or does not exist
                pass
        os._exit(EXIT_CODE)
