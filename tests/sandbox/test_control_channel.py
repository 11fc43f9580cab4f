import socket
import threading

import pytest

from slurmddp.errors import ClusterError
from slurmddp.sandbox import control_channel


@pytest.fixture
def path(tmp_path):
    return tmp_path / "control"


def _serve_once(path, answer):
    server = control_channel.listen(path)
    thread = threading.Thread(target=lambda: (control_channel.answer_request(server, answer), server.close()))
    thread.start()
    return thread


def test_a_request_arrives_and_the_answer_or_the_error_comes_back(path):
    thread = _serve_once(path, lambda request: {"got": request})
    assert control_channel.send_request(path, do="kill", node="n1") == {"got": {"do": "kill", "node": "n1"}}
    thread.join()
    path.unlink()
    thread = _serve_once(path, lambda _: {"error": "no such cable"})
    with pytest.raises(ClusterError, match="no such cable"):
        control_channel.send_request(path, do="kill", node="n1")
    thread.join()


def test_nobody_there_is_an_error_that_says_what_to_do(path):
    with pytest.raises(ClusterError, match="slurmddp sandbox down"):
        control_channel.send_request(path, do="status")


def test_a_client_that_leaves_without_a_word_does_not_end_the_server(path):
    thread = _serve_once(path, lambda _: {})
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    thread.join()
