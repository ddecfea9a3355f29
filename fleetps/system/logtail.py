"""The last lines of a process's log, for the message about its death."""

import os
import re
from pathlib import Path

_LINES = 20
_BYTES = 64 * 1024
_MESSAGE_LINES = 4  # of an exception

# What Paddle writes whether or not anything is wrong: glog INFO and WARNING lines, its import-time
# warnings, banners and the frames of C++ stack traces.
_NOISE = re.compile(
    r"""^\s*$
    | ^[IW]\d{4,8}\s
    | ^\d+\s+\S*(paddle|brpc|bthread|bvar|google)\S*::
    | ^Extension\ modules: | ^Error\ Message\ Summary | ^\s*\[TimeInfo: | File\ "<frozen
    | /decorator/__init__\.py", | /wrapped_decorator\.py",
    | ^\d+\s+(void|bool|int|float|std)\b.*::
    | (User|Deprecation|Future|Runtime)Warning:
    | ^\s*warnings\.warn
    | ^[\s=*+|#-]+$
    | \ INFO\]\ distributed_strategy\.py
    | ^(fl-ps\ >|is_heter_ps_mode|public\ get_the_one_send_context|idx,\ name,\ ctx:|debug\ zcb)
    | ^(valid_optimizer_list|(meta|graph)_optimizer)=\ ?
    | ^(remote_optimize_vars|new\ table_name|new\ var|adam_d2sum):
    | ^\ ?(table_id|program_id|is_tensor_table|is_datanorm_table):
    | ^device\ worker\ | ^create\ (DownpourLiteWorker|c2c\ connection) | ^entering\ self\.
    | ^communicator\ config:
    | ^paddle\.static\.default_startup_program | ^ShowClickEntry\ not\ configured
    | ^\ *C\+\+\ Traceback
    """,
    re.VERBOSE,
)


# The last line of a Python traceback, or the first of several: Paddle's messages have some more.
_EXCEPTION = re.compile(r"^[\w.]*(Error|Exception|Exit|Interrupt): .+")


def exception(log: Path) -> str:
    """The exception that ended a Python program, if its log ends with one."""
    found = (line for line in reversed(tail(log, _MESSAGE_LINES)) if _EXCEPTION.match(line))
    return next(found, "")


def is_noise(line: str) -> bool:
    """Whether Paddle writes such a line whether or not anything is wrong."""
    return _NOISE.search(line) is not None


def tail(log: Path, lines: int = _LINES) -> list[str]:
    """The last lines that say something; the plain last lines where all look like noise."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    every = text.splitlines()
    telling = [line.rstrip() for line in every if not is_noise(line)]
    return (telling or every)[-lines:]
