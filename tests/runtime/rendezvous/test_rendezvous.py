"""Real processes meet over a real store on loopback."""

import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from ports import free_port
from preload import Preloaded, clean_environment
from ranks import make_rank
from torch._C._distributed_c10d import HashStore, TCPStore

from slurmddp.background import run_in_background
from slurmddp.errors import PeerError
from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir
from slurmddp.runtime.health.facts import Facts
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.rendezvous import head_store, rendezvous
from slurmddp.runtime.rendezvous.claims import Claims
from slurmddp.runtime.rendezvous.sealed_store import SealedStore


def ranks(count: int, **changes) -> list[dict]:
    """Return the descriptions of two ranks a node, on nodes n1, n2 and so on."""
    port = free_port()
    return [
        {
            "rank": rank,
            "world_size": count,
            "local_rank": rank % 2,
            "local_world_size": 2,
            "node_rank": rank // 2,
            "host": f"n{rank // 2 + 1}",
            "hosts": ["n1", "n2", "n3", "n4"],
            "store_port": port,
            **changes,
        }
        for rank in range(count)
    ]


@pytest.fixture
def meet(preloaded, tmp_path):
    """Return a function that lets ranks meet, and returns what each process said, and its pid."""

    def play(descriptions: list[dict]) -> tuple[list[str], list[int]]:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        words = [str(Path(__file__).with_name("meet.py")), str(folder), json.dumps(descriptions)]
        process = Preloaded(preloaded, words, clean_environment(), tmp_path, None)
        said = process.communicate(300)
        assert process.returncode == 0, said
        answers = [json.loads((folder / f"{number}.json").read_text()) for number in range(len(descriptions))]
        return [answer["said"] for answer in answers], [answer["pid"] for answer in answers]

    return play


def told(said: list[str]) -> list[str]:
    """Return the answers but those of ranks that had no number yet, or had not come yet, when rank 0 left."""
    assert said[0].startswith("77")
    late = "76 (rank 0 on .* left before all ranks had met|rank [0-9]+ on .* reached no rank 0 at )"
    return [answer for answer in said if not re.match(late, answer)]


@pytest.mark.parametrize("changes", [{}, {"end": False, "stay": 0}])
def test_eight_ranks_meet_and_agree_on_the_end_or_leave_at_once(meet, changes):
    assert meet(ranks(8, **changes))[0] == ["met"] * 8


class Clock:
    """A clock that stands still but for `sleep`; it calls what is due at a time."""

    def __init__(self, due):
        self.now, self.due = 0.0, due

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        del seconds
        self.now += 10.0
        self.due.pop(self.now, lambda: None)()


@pytest.mark.parametrize(("arrivals", "missing"), [((50, 100), ""), ((50, 130), "rank 2 (n2) did not arrive")])
def test_each_arrival_gives_the_next_rank_a_minute(monkeypatch, arrivals, missing):
    """Nodes may import torch for minutes from a slow file system."""
    members = [Rank(launcher="srun", master_addr="n1", master_port=1, **description) for description in ranks(3)]
    store = HashStore()

    def arrive(member):
        fields = ("rank", "local_rank", "node_rank", "world_size", "host")
        claim = {**{field: getattr(member, field) for field in fields}, "pid": 1}
        number = store.add("arrivals", 1)
        store.set(f"arrival/{number}", json.dumps(claim))

    arrive(members[0])
    clock = Clock({time: partial(arrive, member) for time, member in zip(arrivals, members[1:], strict=True)})
    monkeypatch.setattr(rendezvous, "time", clock)
    error = rendezvous._collect(members[0], store, Claims(), 60)
    assert missing in str(error) if missing else error is None


@pytest.mark.parametrize(("own_start", "limit"), [(2.0, 60.0), (110.4, 331.0)])
def test_a_rank_waits_longer_for_the_others_where_its_own_start_took_long(monkeypatch, own_start, limit):
    monkeypatch.setattr(rendezvous.time, "monotonic", lambda: 1000.0 + own_start)
    assert rendezvous.arrival_limit(1000.0) == limit


def test_two_rank_zeros_on_one_host_are_named(meet):
    """The second finds the store's port taken, and itself in the first one's list."""
    first, other = ranks(2)
    said, pids = meet([first, {**first, "delay": 0.3}, {**other, "delay": 1.5, "limit_s": 0.1}])
    assert all("77 rank 0 is claimed twice: by n1 (pid " in answer for answer in told(said[:2]))
    assert all(f"pid {pid}" in said[0] for pid in pids[:2])


def test_a_double_that_comes_late_finds_that_it_is_not_in_the_list(meet):
    members = ranks(2, end=False)
    said, pids = meet([*members, {**members[1], "delay": 0.5}])
    assert said[:2] == ["met", "met"]
    assert said[2] == f"77 rank 1 is claimed twice: by n1 (pid {pids[1]}) and n1 (pid {pids[2]})"


def test_ranks_that_do_not_come_are_named_with_their_hosts(meet):
    said, _ = meet(ranks(6, limit_s=1.0)[:3])
    assert set(said) == {"76 rank 3 (n2), ranks 4, 5 (n3) did not arrive within 1 s"}


def test_a_port_held_by_another_program_is_named(meet):
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        said, _ = meet(ranks(2, store_port=foreign.getsockname()[1]))
    assert all("is taken by a program that is not rank 0 of this job" in answer for answer in said)
    assert all(answer.startswith("76 port ") for answer in said)


def test_a_port_held_by_another_job_is_named(meet):
    members = ranks(2, end=False, stay=4)
    said, _ = meet([*members, {**members[0], "job": "18", "secret": "t", "delay": 0.5}])
    assert said[:2] == ["met", "met"]
    assert said[2].endswith("on 127.0.0.1 is taken by a program that is not rank 0 of this job")


@pytest.mark.parametrize(
    ("head", "why"),
    [("127.0.0.1", "the name resolves to 127.0.0.1"), ("no-such-host.invalid", "the name does not resolve")],
)
def test_a_rank_zero_that_never_comes_is_named_with_port_and_address(meet, head, why):
    (_, member) = ranks(2, limit_s=0.5, master_addr=head)
    said, _ = meet([member])
    assert f"76 rank 1 on n1 reached no rank 0 at {head} port {member['store_port']} within 0.5 s: {why}" in said[0]


def test_rank_zero_on_another_host_than_the_head_is_refused(meet):
    said, _ = meet(ranks(2, master_addr="192.0.2.1")[:1])
    wanted = "77 rank 0 runs on n1, but MASTER_ADDR 192.0.2.1 is another host; export MASTER_ADDR as the first host"
    assert said == [f"{wanted} of the job"]


def looked_at(folder: Path, **changes) -> list[dict]:
    """Return four ranks that look at each other as they meet; those of n2 with changed facts."""
    run = RunDir(folder)
    run.attempt("17", "0.0").mkdir(parents=True)
    members = ranks(4, attempt="0.0", run_dir=str(folder), hosts=[], facts={"shm_mb": 9999})
    for member in members[2:]:
        member["facts"] = member["facts"] | changes
    return members


def found(folder: Path) -> list[tuple[str, str, str]]:
    return [(event["check"], event["on_host"], event["what"]) for event in read_records(RunDir(folder).events)]


def test_ranks_that_differ_meet_and_the_difference_is_told(meet, tmp_path):
    """What a node wrote to be seen is gone."""
    members = looked_at(tmp_path / "run", versions={"torch": "1.0"})
    for member in members[2:]:
        member["clock_s"] = -30.0
    assert meet(members)[0] == ["met"] * 4
    differences = found(tmp_path / "run")
    assert ("clock", "n2") in [each[:2] for each in differences]
    assert any(what.startswith("torch differs: ") and "1.0 on ranks 2, 3 on n2" in what for _, _, what in differences)
    assert list((tmp_path / "run" / "logs" / "17" / "0.0").iterdir()) == []


def test_what_certainly_breaks_the_job_ends_all_ranks(meet, tmp_path):
    said, _ = meet(looked_at(tmp_path / "run", folder_error="EROFS"))
    wanted = "77 n2: the run's folder cannot be written to (EROFS)"
    assert all(answer.startswith(wanted) for answer in told(said))
    assert found(tmp_path / "run")[0][:2] == ("folder", "n2")


def test_a_folder_that_a_node_has_for_itself_is_told(meet, tmp_path):
    members = looked_at(tmp_path / "run")
    RunDir(tmp_path / "other").attempt("17", "0.0").mkdir(parents=True)
    for member in members[2:]:
        member["run_dir"] = str(tmp_path / "other")
    assert meet(members)[0] == ["met"] * 4
    assert [each[:2] for each in found(tmp_path / "run")] == [("folder", "n2")]


def test_rank_zero_stays_for_a_while_for_a_rank_that_never_says_it_ended(meet):
    members = ranks(2, end_limit_s=0.5)
    members[1]["end"] = False
    assert meet(members)[0] == ["alone", "met"]


def test_a_rank_that_ends_after_rank_zero_has_left_ends_well(meet):
    members = ranks(2)
    members[0] |= {"end": False, "stay": 0}
    members[1]["ends_after"] = 0
    assert meet(members)[0] == ["met", "alone"]


def claim(rank: int, **changes) -> Facts:
    return Facts(
        **{"rank": rank, "local_rank": rank, "node_rank": 0, "world_size": 2, "host": "n1", "pid": rank, **changes}
    )


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ([claim(0), claim(1)], None),
        ([claim(0, pid=12), claim(0, host="n2", pid=7)], "rank 0 is claimed twice: by n1 (pid 12) and n2 (pid 7)"),
        ([claim(0), claim(1, local_rank=0)], "ranks 0 and 1 on n1 both have local rank 0 (pids 0 and 1)"),
        (
            [claim(0), claim(1), claim(0, world_size=4, host="n2")],
            "ranks disagree on the world size: 2 on n1 (ranks 0, 1), 4 on n2 (rank 0)",
        ),
    ],
)
def test_claims_that_contradict_each_other(claims, message):
    found = next(filter(None, map(Claims().add, claims)), None)
    assert (str(found) if found else None) == message


@pytest.mark.parametrize(
    ("arrival", "place"),
    [
        ({"rank": 1, "host": "n2"}, "a rank on n2 "),
        ({"rank": 1, "host": "n2", "facts": ""}, "a rank on n2 "),
        ({"claim": 7}, "a rank "),
        ([], "a rank "),
    ],
)
def test_an_arrival_of_another_version_is_told_with_its_host(arrival, place):
    error = Claims().read(arrival)
    assert (
        error is not None and str(error).startswith(f"{place}sent what rank 0 cannot read") and "versions" in str(error)
    )


def test_four_thousand_ranks_are_compared_at_once():
    met, claims = Claims(), [claim(rank, world_size=4096) for rank in range(4096)]
    began = time.process_time()
    assert not any(map(met.add, claims))
    assert time.process_time() - began < 0.5


def test_the_store_of_a_head_with_an_address_of_ipv4_listens_for_ipv4_alone():
    """At a socket for both, torch's server asks DNS for each rank's address before it accepts the next rank."""
    alone = {"local_world_size": 1, "launcher": "srun", "master_addr": "127.0.0.1", "master_port": 1}
    rank = Rank(**{**ranks(1)[0], **alone})
    store = head_store._create_store(rank, is_server=True)
    listens = re.compile(rf":{rank.store_port:04X} [0-9A-F]+:0000 0A ")
    listening = {name: bool(listens.search(Path("/proc/net", name).read_text())) for name in ("tcp", "tcp6")}
    assert (listening, store.port) == ({"tcp": True, "tcp6": False}, rank.store_port)


def test_a_stop_is_not_confirmed_by_a_rank_0_whose_children_alone_hold_its_port():
    """As when it was killed, and the processes of its loader still live: a connection is accepted, but not answered."""
    rank = make_rank(1, 2, store_port=free_port())
    with socket.create_server((rank.master_addr, rank.store_port)):
        met = head_store.Rendezvous(rank, SealedStore(HashStore(), "unused", ""), {})
        assert run_in_background(lambda: met.confirm_stop(0.5)).result(10) == [0]


SILENT_DNS = """
import contextlib, socket, time
from slurmddp.runtime.rendezvous.head_store import _short_lookups
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
socket.getnameinfo(("127.0.0.1", 80), 0)  # torch's client has looked up names before, too
with _short_lookups():
    begin = time.monotonic()
    with contextlib.suppress(socket.gaierror):
        socket.getnameinfo(("::ffff:192.0.2.1", 80), 0)
    took_s = time.monotonic() - begin
server.setblocking(False)
print(took_s < 5, b"in-addr" in server.recv(512))
"""


def test_a_server_of_dns_that_does_not_answer_holds_a_rank_up_for_a_second(tmp_path):
    """In a network of its own, in which it is asked for the address of a rank; without our options it takes 10 s."""
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    lines = f'ip link set lo up && mount --bind {tmp_path}/resolv.conf "$(realpath /etc/resolv.conf)" && exec "$@"'
    machine = ["unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c", lines, "sh"]
    if subprocess.run([*machine, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine gives no namespaces to an ordinary user")
    asked = subprocess.run([*machine, sys.executable, "-c", SILENT_DNS], capture_output=True, text=True, check=True)
    assert asked.stdout == "True True\n"


HALF_OPEN = 600
FORGED = {"rank": 0, "local_rank": 0, "node_rank": 0, "world_size": 99, "host": "\x1b[31mevil\nMemoryError: ", "pid": 1}


def interfere(port: int, ended: threading.Event) -> None:
    """As another program: write what ranks write, under the names that were known."""
    while not ended.is_set():
        with suppress(OSError), suppress(RuntimeError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            store = TCPStore("127.0.0.1", port, None, False, timedelta(seconds=5), wait_for_workers=False)  # noqa: FBT003
            while not ended.is_set():
                number = store.add("slurmddp/0/arrivals", 1)
                store.set(f"slurmddp/0/arrival/{number}", json.dumps({"claim": FORGED, "facts": ""}))
                store.set("slurmddp/0/verdict", json.dumps({"error": "forged", "retry": False, "arrivals": 2}))
                time.sleep(0.01)
        time.sleep(0.01)


def test_what_a_stranger_writes_into_the_store_is_read_by_no_rank(meet):
    """It ended three of three jobs with status 77, by a cause that the stranger chose."""
    members = ranks(4)
    members[3]["delay"] = 1.5
    ended = threading.Event()
    threading.Thread(target=interfere, args=(members[0]["store_port"], ended), daemon=True).start()
    said = meet(members)[0]
    ended.set()
    assert said == ["met"] * 4


def hold_connections(port: int, ended: threading.Event) -> None:
    """As another program: connect 600 times as soon as the store listens; say half a message, or none."""
    held: list[socket.socket] = []
    while len(held) < HALF_OPEN and not ended.is_set():
        with suppress(OSError):
            held.append(socket.create_connection(("127.0.0.1", port), timeout=1))
            if len(held) % 2:
                held[-1].sendall(b"\x00garbage"[: len(held) % 9])
    ended.wait()
    for one in held:
        one.close()


def test_connections_that_say_nothing_keep_no_rank_from_the_others(meet):
    members = ranks(4)
    members[3]["delay"] = 1.5
    ended = threading.Event()
    holder = threading.Thread(target=hold_connections, args=(members[0]["store_port"], ended), daemon=True)
    holder.start()
    said = meet(members)[0]
    ended.set()
    holder.join()
    assert said == ["met"] * 4


def test_a_value_that_another_program_has_replaced_ends_the_attempt_and_can_be_tried_again():
    shared = HashStore()
    store = SealedStore(shared, "slurmddp/0", "digits")
    store.set("verdict", "yes")
    store.set("arrival/1", "é")
    assert store.check(["verdict"]) and not store.check(["other"])
    assert (store.get("verdict"), store.multi_get(["arrival/1"])) == (b"yes", ["é".encode()])
    assert SealedStore(shared, "slurmddp/0", "others").check(["verdict"]) is False
    name, other = store._name("verdict"), store._name("arrival/1")
    for forged in (b"", b"yes", shared.get(other)):  # the last has a code, but that of another key
        shared.set(name, forged)
        with pytest.raises(PeerError, match="another program has written to the store"):
            store.get("verdict")


def test_a_process_with_another_secret_is_none_of_the_ranks(meet):
    members = ranks(2, limit_s=2.0)
    members[1] |= {"secret": "other"}
    assert meet(members)[0][0] == "76 rank 1 (n1) did not arrive within 2 s"


def test_without_a_secret_ranks_meet_too(meet):
    assert meet(ranks(2, secret=""))[0] == ["met"] * 2
