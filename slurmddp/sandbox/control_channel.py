"""The protocol between a sandbox's supervisor and the programs outside.

During the start: lines of text on its standard streams. Then: requests on a Unix socket, one line of JSON each way.
"""

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from slurmddp.errors import ClusterError

STAY: Final = b"stay\n"
"""The caller's line that lets the sandbox run on when the caller has ended."""
FAILED: Final = "failed: "
"""The beginning of the line that says why the sandbox did not start."""
READY: Final = "ready"
"""The line after the start of all daemons."""
_DEADLINE_S: Final = 30


def send_request(path: Path, **request: str) -> dict[str, Any]:
    """Return the supervisor's answer; raise ClusterError when there is no answer, or when it is an error."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_DEADLINE_S)
            client.connect(str(path))
            client.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(client.makefile("rb").readline())
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"the sandbox does not answer on {path} ({error}); wait until it is up, or type: slurmddp sandbox down"
        ) from error
    if "error" in answer:
        raise ClusterError(answer["error"])
    return dict(answer)


def listen(path: Path) -> socket.socket:
    """Return a socket for requests."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def answer_request(server: socket.socket, handle: Callable[[dict[str, str]], dict[str, Any]]) -> None:
    """Read one request and send what `handle` returns for it; a client that has left is no error."""
    client, _ = server.accept()
    with client, suppress(OSError, ValueError):
        client.settimeout(_DEADLINE_S)
        request = json.loads(client.makefile("rb").readline())
        client.sendall(json.dumps(handle(request)).encode() + b"\n")
