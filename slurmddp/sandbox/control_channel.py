"""What is said between a sandbox's supervisor and those outside.

While it comes up: lines of text on its standard streams. Then: requests on a Unix socket, one line of JSON each way.
"""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from slurmddp.errors import ClusterError

STAY: Final = b"stay\n"
"""What the caller says when the sandbox shall outlive it."""
FAILED: Final = "failed: "
"""The start of the line that says why the sandbox did not come up."""
READY: Final = "ready"
"""The line after all daemons have been started."""
_DEADLINE_S: Final = 30


def ask(path: Path, **request: str) -> dict[str, Any]:
    """Return the supervisor's answer; raise ClusterError when there is none, or when it is an error."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_DEADLINE_S)
            client.connect(str(path))
            client.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(client.makefile("rb").readline())
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"the sandbox does not answer on {path} ({error}); it comes up, or else: slurmddp sandbox down"
        ) from error
    if "error" in answer:
        raise ClusterError(answer["error"])
    return dict(answer)


def listen(path: Path) -> socket.socket:
    """Return a socket that takes requests."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def serve(server: socket.socket, answer: Callable[[dict[str, str]], dict[str, Any]]) -> None:
    """Take one request and send back what `answer` says to it; a client that left is no error."""
    client, _ = server.accept()
    with client:
        client.settimeout(_DEADLINE_S)
        try:
            request = json.loads(client.makefile("rb").readline())
            client.sendall(json.dumps(answer(request)).encode() + b"\n")
        except (OSError, ValueError):
            return
