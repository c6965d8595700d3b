"""The program that tries to get out of a sandbox; its text is given to the sandbox's Python with `-c`.

Its one argument names an attempt. It prints one JSON object a line, the last of which counts, since some attempts
end with the process. Nothing but the standard library is imported, and nothing of selfplay.

What is not here: what counts as stopped (`proof`).
"""

import ctypes
import errno
import json
import os
import signal
import socket
import sys
import time

ADDRESSES = (("1.1.1.1", 443), ("8.8.8.8", 53), ("169.254.169.254", 80), ("2606:4700:4700::1111", 443))
NAME = "example.com"
CLONE_NEWUSER = 0x10000000


def say(**told: object) -> None:
    print(json.dumps(told), flush=True)


def why(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else str(error)


def network() -> None:
    """Connect to a few addresses, resolve a name."""
    reached, refused = [], ""
    for address in ADDRESSES:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_STREAM) as tried:
                tried.settimeout(1.0)
                tried.connect(address)
                reached.append(address[0])
        except OSError as error:
            refused = refused or why(error)
    say(reached=reached, refused=refused, interfaces=names())
    signal.alarm(2)  # note: a resolver that gets no answer would wait for half a minute; what was said counts.
    try:
        socket.getaddrinfo(NAME, 443)
    except OSError:
        return
    say(reached=[*reached, NAME], refused=refused, interfaces=names())


def names() -> list[str]:
    return sorted(name for _, name in socket.if_nameindex())


def processes() -> None:
    """Fork until somebody says no."""
    limit, refused = int(sys.argv[2]), ""
    made: list[int] = []
    try:
        while len(made) < 2 * limit:
            child = os.fork()
            if child == 0:
                time.sleep(30.0)
                os._exit(0)
            made.append(child)
    except OSError as error:
        refused = why(error)
    for child in made:
        os.kill(child, signal.SIGKILL)
    say(made=len(made), refused=refused)


def memory() -> None:
    """Take memory, and touch it, until somebody says no."""
    limit, refused = int(sys.argv[2]), ""
    held: list[bytes] = []
    try:
        while 8 * len(held) < 2 * limit:
            held.append(b"x" * (8 << 20))
            say(megabytes=8 * len(held), refused="")
    except MemoryError:
        refused = "out of memory"
    taken = 8 * len(held)
    held.clear()
    say(megabytes=taken, refused=refused)


def disk() -> None:
    """Write files into the work tree until somebody says no."""
    written, refused = fill([f"fill{number}" for number in range(64)], each=4, most=2 * int(sys.argv[2]))
    say(megabytes=written, refused=refused)


def file() -> None:
    """Write one file until somebody says no."""
    written, refused = fill(["big"], each=4096, most=2 * int(sys.argv[2]))
    say(megabytes=written, refused=refused)


def fill(paths: list[str], *, each: int, most: int) -> tuple[int, str]:
    """Megabytes written, and what was said; the files are removed."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    chunk, written, refused = b"x" * (1 << 20), 0, ""
    try:
        for path in paths:
            with open(path, "wb", buffering=0) as out:
                for _ in range(each):
                    if written >= most or out.write(chunk) < len(chunk):
                        break
                    written += 1
                else:
                    continue
                if written >= most:
                    break
                out.write(chunk)
    except OSError as error:
        refused = why(error)
    for path in paths:
        if os.path.exists(path):
            os.remove(path)
    return written, refused


def secrets() -> None:
    """Read what only root may."""
    read, refused = [], ""
    for path in ("/etc/shadow", "/root/.ssh/id_rsa", "/proc/kcore", "/dev/mem"):
        try:
            with open(path, "rb") as tried:
                tried.read(1)
            read.append(path)
        except OSError as error:
            refused = refused or why(error)
    say(read=read, refused=refused)


def privileges() -> None:
    """Become root, make a user namespace."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
        status = dict(line.split(":", 1) for line in lines)
    gained = [f"{name} {status[name].strip()}" for name in ("CapEff", "CapPrm", "CapBnd") if int(status[name], 16)]
    refused = ""
    try:
        os.setuid(0)
        gained.append("uid 0")
    except OSError as error:
        refused = why(error)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) == 0:
        gained.append("a user namespace")
    else:
        number = ctypes.get_errno()
        refused = "there may be none" if number == errno.ENOSPC else os.strerror(number).lower()
    say(gained=gained, refused=refused, new_privileges=status["NoNewPrivs"].strip() != "1")


ATTEMPTS = (network, processes, memory, disk, file, secrets, privileges)


if __name__ == "__main__":
    {attempt.__name__: attempt for attempt in ATTEMPTS}[sys.argv[1]]()
