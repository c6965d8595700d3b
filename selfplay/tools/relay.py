"""The program that stands in a sandbox between a harness and the engine. Standard library only.

Sent as source to the sandbox's own interpreter (`python -I -S -c`) and run there as the candidate. It starts the
harness with an address on the sandbox's own loopback as `OPENAI_BASE_URL`; each request that comes there goes to the
engine as one line of JSON, and the engine's next line is the answer: so the sandbox needs no network. One request at a
time, in the order in which they come; the last line says how the harness ended.

What is not covered: what a request means (`doors.harness`).
"""

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    # note: known to type checkers by this name; `typing` would cost milliseconds.
    from typing import Any

TOLD = 2000
"""Last characters of the harness's output that the engine is told."""
_turn = threading.Lock()


def exchange(line: "dict[str, Any]") -> "dict[str, Any]":
    """Say a line to the engine and wait for its answer; without an engine there is nothing left to do."""
    with _turn:
        print(json.dumps(line), flush=True)
        answer = sys.stdin.readline()
    if not answer:
        os._exit(1)
    found: dict[str, Any] = json.loads(answer)
    return found


class Handler(http.server.BaseHTTPRequestHandler):
    """One request of the harness."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._pass_on("")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        raw = self.rfile.read(int(length)) if length.isdecimal() else b""
        self._pass_on(raw.decode("utf-8", "replace"))

    def _pass_on(self, body: str) -> None:
        answer = exchange({"method": self.command, "path": self.path, "body": body})
        data = answer["body"].encode()
        self.send_response(answer["status"])
        self.send_header("Content-Type", answer["type"])
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: standard output is the engine's."""


def main() -> None:
    """Run the harness that the first line names, to its end."""
    told = json.loads(sys.stdin.readline())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    # note: two names, since clients differ in which they read.
    own = {"OPENAI_BASE_URL": url, "OPENAI_API_BASE": url, "OPENAI_API_KEY": "selfplay"}
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                told["argv"], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **own}
            )
            code, said = done.returncode, ""
        except OSError as error:
            code, said = 127, str(error)
        output.seek(max(0, output.seek(0, os.SEEK_END) - TOLD))
        said = said or output.read().decode("utf-8", "replace")
    _turn.acquire()
    print(json.dumps({"ended": code, "said": said}), flush=True)
    # note: a request that still waits is of nobody any more.
    os._exit(0)


if __name__ == "__main__":
    main()
