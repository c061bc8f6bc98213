"""Ctrl-C without a traceback: called by a script before it imports anything else, for that takes a while too.

Written for an old Python (3.6 or later), as bootstrap.py is.
"""

import sys


def end_quietly() -> None:
    """From now on an interrupt that nobody handles ends the program with status 130, and says nothing.

    One that came while interrupts were blocked (`bootstrap.launch`) comes now.
    """
    sys.excepthook = _hook

    import signal  # not before: it takes longer than all else here

    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _hook(kind: "type[BaseException]", error: BaseException, trace: object) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.exit(130)
    sys.__excepthook__(kind, error, error.__traceback__)
