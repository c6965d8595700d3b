"""How the program inside a container turns a copy of itself into a command of the candidate's.

Sent as source, in front of `agent`; so it imports next to nothing.

Not covered: when to start what, and how it ends (`agent`).
"""

import _ctypes
import _signal  # type: ignore[import-not-found]
import os

DUMPABLE, SUBREAPER = 4, 36
"""What `prctl` sets: may processes of this uid trace and read this one; does it inherit orphans."""


def prctl(option: int, value: int) -> None:
    """The system call of that name; through `_ctypes` alone, because `ctypes` would cost another 2 ms.

    Raises:
        OSError: the kernel refuses.
    """
    # note: RTLD_NOW; the interpreter itself is linked against the C library.
    library = _ctypes.dlopen(None, 2)  # type: ignore[arg-type]
    address = _ctypes.dlsym(library, "prctl")
    if _ctypes.call_function(address, (option, value, 0, 0, 0)) != 0:
        raise OSError(f"prctl {option} {value} was refused")


def go_first() -> None:
    """Ask the kernel, when it is short of memory, to take this process before the program that reports on it."""
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(b"1000")
    except OSError:
        # An engine may have it read-only; then the largest goes first, as ever.
        pass


def become(argv: list[bytes], *, cwd: bytes, env: dict[bytes, bytes]) -> None:
    """Turn this process into the command; with a word on standard error and a shell's exit code where that fails."""
    code = 125
    try:
        # note: this process is a copy that is about to be the candidate's; nobody else of its uid runs as yet.
        prctl(DUMPABLE, 1)
        go_first()
        for number in (13, 25):
            # SIGPIPE and SIGXFSZ, which Python ignores.
            _signal.signal(number, 0)
        os.chdir(cwd)
        code = 126
        replace(argv, {**os.environb, **env})
    except FileNotFoundError as error:
        code = 127 if code == 126 else code
        os.write(2, f"{os.fsdecode(argv[0])}: {error}\n".encode(errors="replace"))
    except OSError as error:
        os.write(2, f"{os.fsdecode(argv[0])}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(code)


def replace(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """`os.execvpe` without its import of `warnings`, which is another 2 ms a command.

    Raises:
        OSError: there is no such program, or it cannot be run.
    """
    folders = [b""] if b"/" in argv[0] else [folder + b"/" for folder in env.get(b"PATH", b"/bin").split(b":")]
    refused: OSError = FileNotFoundError("no such command")
    for folder in folders:
        try:
            os.execve(folder + argv[0], argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            refused = error
    raise refused
