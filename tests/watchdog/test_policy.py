"""The policy, on series of beats: each kind of hang is found in time, at the right rank; healthy trainings are not."""

import pytest

from slurmddp.watchdog.beats import Beat
from slurmddp.watchdog.policy import (
    follow,
    judge,
    judge_work,
    note_look,
    timeout_s,
)
from slurmddp.watchdog.usage import Used

TIMEOUT_S = 10.0
EVERY_S = 2.0
FAULT_S = 20.0
"""Until then, every rank trains."""


class Rank:
    """A rank whose beats are made from what it does over time."""

    def __init__(self, number, world_size):
        self.beat = Beat(number, world_size, "0", f"n{number // 2 + 1}", 100 + number, EVERY_S)

    def advance(self, now, doing):
        """Do something for the seconds of one beat: how much CPU, what moves, where."""
        used = [doing.pop(name, 0) * EVERY_S for name in ("cpu_s", "children_cpu_s", "moved_bytes")]
        after = Used(*used, is_blocked=doing.pop("is_blocked", False))
        done = self.beat.done + doing.pop("steps", 0) + doing.pop("batches", 0)
        spins = doing.pop("spins_to_wait", False)
        place = {"place": "main() at train.py:9", "wait": "", "same_s": 0.0, "few_s": 0.0} | doing
        since = [place.pop(name) for name in ("same_s", "few_s")]
        same_s, few_s = (now - at if at else 0.0 for at in since)
        work = judge_work(NOTHING, after, EVERY_S, same_s=same_s, waits=bool(place["wait"]), spins=spins)
        self.beat = self.beat._replace(done=done, works=work[0], may_work=work[1], few_s=few_s, **place)
        return self.beat


NOTHING = Used(0.0, 0.0, 0, is_blocked=False)


TRAINS = {"steps": 3, "batches": 3, "cpu_s": 0.6}
WAITS = {"wait": "all_reduce", "same_s": FAULT_S, "few_s": FAULT_S, "cpu_s": 0.001}
BACKWARD = {**WAITS, "wait": "backward"}
SLEEPS = {"place": "load() at data.py:40", "same_s": FAULT_S, "few_s": FAULT_S, "cpu_s": 0.001}
SPINS = {"place": "poll() at loop.py:3", "few_s": FAULT_S, "cpu_s": 1.0}
COMPUTES = {"place": "score() at metrics.py:8", "cpu_s": 0.9}
NATIVE = {**COMPUTES, "same_s": FAULT_S, "few_s": FAULT_S}
SILENT = None


def play(doings, *, until_s=400.0, seen=None):
    """Return when a hang is found and the hang, with what each rank does from FAULT_S on; None when none is.

    `seen` is what a look shows of silent ranks: the state, and the share of a CPU that they use.
    """
    ranks = [Rank(number, len(doings)) for number in range(len(doings))]
    tracks = {}
    now = 0.0
    while now < until_s:
        now += EVERY_S
        for rank, doing in zip(ranks, doings, strict=True):
            what = TRAINS if now <= FAULT_S else doing(now) if callable(doing) else doing
            if what is not None:
                number = rank.beat.rank
                tracks[number] = follow(tracks.get(number), rank.advance(now, {**what}), now)
        verdict = judge(tracks.values(), TIMEOUT_S, now)
        if verdict and verdict.unseen:
            state, share = seen
            for track in verdict.unseen:
                cpu_s = track.beat.cpu_s + share * (now - track.at)
                tracks[track.beat.rank] = note_look(track, {"state": state, "cpu_s": cpu_s}, now)
            verdict = judge(tracks.values(), TIMEOUT_S, now)
        if verdict:
            return now, verdict
    return None


def numbers(hang):
    return [beat.rank for beat in hang.odd]


HANGS = {
    "sleep in loading": ([WAITS, WAITS, WAITS, SLEEPS], [3], "rank 3 on n2 in load() at data.py:40, while 3 ranks"),
    "sleep, two ranks": ([WAITS, SLEEPS], [1], "rank 1 on n1 in load() at data.py:40, while 1 rank waited in all_red"),
    "another collective": (
        [WAITS, {**WAITS, "wait": "all_gather", "place": "log() at t.py:3"}, WAITS, WAITS],
        [1],
        "rank 1 on n1 waiting in all_gather, in log() at t.py:3, while 3 ranks waited in all_reduce",
    ),
    "another collective, two ranks": (
        [WAITS, {**WAITS, "wait": "barrier"}],
        [],
        "no rank stands out: rank 0 on n1 waiting",
    ),
    "one left the loop": ([BACKWARD, BACKWARD, SILENT, BACKWARD], [2], "rank 2 on n2 stopped, last in main()"),
    "spin": ([WAITS, SPINS], [1], "rank 1 on n1 in poll() at loop.py:3"),
    "stopped": ([WAITS, WAITS, SILENT, WAITS], [2], "rank 2 on n2 stopped, last in main() at train.py:9, while 3"),
    "lock held": ([WAITS, SILENT, WAITS, WAITS], [1], "rank 1 on n1 stopped"),
    "fifo": ([SLEEPS | {"place": "read() at d.py:1"}, WAITS, WAITS, WAITS], [0], "rank 0 on n1 in read() at d.py:1"),
    "loader worker": ([WAITS, WAITS, {**SLEEPS, "children_cpu_s": 0.01}, WAITS], [2], "rank 2 on n2 in load()"),
    "network cut": ([WAITS, WAITS, SILENT, SILENT], [2, 3], "ranks 2-3 on n2 stopped, last in main() at train.py:9"),
    "stuck write": ([{**SLEEPS, "place": "save() at t.py:5"}, WAITS], [0], "rank 0 on n1 in save() at t.py:5"),
    "all in one collective": ([WAITS] * 4, [], "no rank stands out: ranks 0-3 on 2 nodes waiting in all_reduce"),
    "dead file server": ([{**SLEEPS, "is_blocked": True}, WAITS], [0], "rank 0 on n1 in load()"),
    "most are blocked": ([SLEEPS, SLEEPS, SLEEPS, WAITS], [], "no rank stands out: ranks 0-2 on 2 nodes in load()"),
    "gpus": ([{**WAITS, "spins_to_wait": True, "cpu_s": 1.0}] * 3 + [SLEEPS], [3], "rank 3 on n2 in load()"),
}


@pytest.mark.parametrize("kind", HANGS)
def test_a_hang_is_found_in_time_and_its_rank_named(kind):
    doings, odd, text = HANGS[kind]
    found_s, hang = play(doings, seen=("T", 0.0))
    limit_s = TIMEOUT_S * (4 if kind in ("spin", "dead file server") else 1)
    assert limit_s <= found_s - FAULT_S <= limit_s + 5
    assert numbers(hang) == odd
    assert hang.text.startswith(text)
    assert hang.is_certain


def during(begin_s, end_s, what, then=TRAINS):
    return lambda now: what if begin_s < now <= end_s else then


LONG = FAULT_S + 3 * TIMEOUT_S
HEALTHY = {
    "validation on rank 0": [during(0, 300, COMPUTES)] + [during(0, 300, WAITS)] * 3,
    "native validation on rank 0": [during(0, 300, NATIVE)] + [during(0, 300, WAITS)] * 3,
    "few lines on rank 0": [during(0, LONG, {**SPINS})] + [during(0, LONG, WAITS)] * 3,
    "compile": [during(0, 200, {"children_cpu_s": 2.0, "same_s": FAULT_S, "few_s": FAULT_S})] * 4,
    "compile on rank 0": [during(0, 200, {"children_cpu_s": 2.0, "few_s": FAULT_S}), during(0, 200, BACKWARD)],
    "slow first batch": [during(0, 200, {**SLEEPS, "moved_bytes": 5e5})] + [during(0, 200, WAITS)] * 3,
    "slow first batch of loader workers": [during(0, 200, {**SLEEPS, "children_cpu_s": 0.3})] * 2,
    "long checkpoint": [during(0, 90, {**SLEEPS, "moved_bytes": 1e7})] + [during(0, 90, WAITS)] * 3,
    "checkpoint sent to rank 0": [during(0, 90, {**WAITS, "wait": "gather", "cpu_s": 0.4})] * 4,
    "long fsync": [during(0, LONG, {**SLEEPS, "is_blocked": True})] + [during(0, LONG, WAITS)] * 3,
    "download by rank 0": [during(0, 300, {**SLEEPS, "moved_bytes": 3e4})] + [during(0, 300, WAITS)] * 3,
    "barrier at exit": [during(0, 200, COMPUTES, SILENT)] + [during(0, 200, {**WAITS, "wait": "barrier"}, SILENT)] * 3,
    "others have ended": [COMPUTES] + [SILENT] * 3,
    "accumulation": [{"batches": 5, "cpu_s": 0.5}] * 4,
    "new workers": [during(0, 60, {**SLEEPS, "children_cpu_s": 0.9})] * 4,
    "pause of all": [during(0, 300, SLEEPS)] * 4,
    "download by all": [SLEEPS] * 4,
    "different places, none waits": [SLEEPS, {**SLEEPS, "place": "x"}],
    "uneven data": [SILENT, TRAINS, TRAINS, TRAINS],
    "machine under load": [during(0, 200, {"cpu_s": 0.06, "few_s": FAULT_S, "same_s": FAULT_S}), WAITS],
    "all stopped for a time": [during(0, 120, SILENT, TRAINS)] * 4,
    "lock held by native code": [during(0, 120, SILENT), during(0, 120, WAITS)],
    "gpu: a wait for a kernel": [{**NATIVE, "spins_to_wait": True}] * 4,
}


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_training_is_no_hang(kind):
    assert play(HEALTHY[kind], seen=("R", 0.9)) is None


def test_a_rank_that_never_sent_a_beat_may_work():
    tracks = [follow(None, Rank(0, 2).beat._replace(wait="barrier"), 0.0)]
    assert judge(tracks, TIMEOUT_S, 10_000.0) is None
    tracks = [tracks[0]._replace(at=9_999.0)]
    assert judge(tracks, TIMEOUT_S, 10_000.0) is None


def test_silence_of_all_is_named_late_and_never_certain():
    found_s, hang = play([SLEEPS] * 2, until_s=4000.0)
    assert 1800 <= found_s - FAULT_S < 1810
    assert (hang.is_certain, numbers(hang)) == (False, [])
    assert hang.text == "no rank does anything: ranks 0-1 on n1 in load() at data.py:40"


def test_a_silent_rank_is_looked_at_before_it_is_accused():
    assert play([WAITS, SILENT], seen=("R", 0.5)) is None
    assert numbers(play([WAITS, SILENT], seen=("gone", 0.0))[1]) == [1]


def test_a_silent_rank_is_where_a_look_finds_it():
    track = follow(None, Rank(1, 2).beat._replace(place="main() at train.py:9"), 0.0)
    stack = [{"file": "/usr/lib/python3.11/ctypes.py", "line": 1, "function": "call"}]
    stack += [{"file": "/home/me/lock.py", "line": 7, "function": "hold"}]
    found = note_look(track, {"state": "S", "cpu_s": 0.0, "stack": stack}, 20.0)
    assert (found.found, found.beat.place) == ("silent", "hold() at lock.py:7")


def test_what_a_stopped_rank_used_before_it_was_stopped_is_no_work():
    track = follow(None, Rank(1, 2).beat, 0.0)
    for state, works in (("T", False), ("D", True), ("S", True)):
        assert (note_look(track, {"state": state, "cpu_s": 5.0}, 20.0).active_at == 20.0) is works


def test_ranks_stopped_together_have_their_time_again():
    """The first of them to go on finds the others silent."""
    first, second = Rank(0, 2), Rank(1, 2)
    tracks = {}
    for now in range(2, 22, 2):
        for rank in (first, second):
            tracks[rank.beat.rank] = follow(tracks.get(rank.beat.rank), rank.advance(float(now), {**TRAINS}), now)
    tracks[0] = follow(tracks[0], first.advance(300.0, {**WAITS}), 300.0)
    assert judge(tracks.values(), TIMEOUT_S, 300.0) is None


def test_progress_begins_a_new_stall():
    def twice(now):
        return SLEEPS if 20 < now <= 60 or now > 100 else TRAINS

    def waits(now):
        return WAITS if twice(now) is SLEEPS else TRAINS

    first, _ = play([twice, waits])
    assert 30 <= first <= 35
    found, hang = play([lambda now: TRAINS if now <= 100 else SLEEPS, lambda now: TRAINS if now <= 100 else WAITS])
    assert 110 <= found <= 115
    assert hang.since == pytest.approx(100, abs=EVERY_S)


def test_a_new_process_of_a_rank_has_its_time_again():
    beat = Rank(0, 2).beat
    track = follow(follow(None, beat, 10.0), beat, 11.0)
    assert track.active_at == 10.0
    assert follow(track, beat._replace(pid=7), 12.0).active_at == 12.0


@pytest.mark.parametrize(
    ("text", "done", "longest_s", "seconds"),
    [
        ("", 0, 0.0, 600.0),
        ("", 9, 1.0, 300.0),
        ("", 9, 100.0, 800.0),
        ("auto", 2, 0.0, 600.0),
        ("auto", 30, 0.0, 45.0),
        ("auto", 9, 1.0, 45.0),
        ("auto", 9, 10.0, 80.0),
        ("7", 9, 100.0, 7.0),
        ("10s", 9, 100.0, 10.0),
        ("10m", 9, 100.0, 600.0),
        ("2h", 9, 100.0, 7200.0),
    ],
)
def test_the_time_out(text, done, longest_s, seconds):
    """Of a rank that made many steps before its second beat, the longest is not known: it was short."""
    track = follow(None, Rank(0, 1).beat._replace(done=done), 0.0)
    assert timeout_s(text, [track._replace(longest_s=longest_s)]) == seconds


def test_the_longest_step_is_none_before_the_second_progress_and_none_that_was_silent():
    track, longest = None, []
    for at in range(2, 62, 2):  # it compiles after the first batch, then has a step of 10 s, and is stopped for 18 s
        beat = Rank(0, 1).beat._replace(done=(at > 4) + (at > 14) + (at > 24))
        if not 30 < at < 48:
            track = follow(track, beat._replace(done=beat.done + (at >= 48)), float(at))
            longest.append(track.longest_s)
    assert longest[longest.index(10.0) :] == [10.0] * (len(longest) - longest.index(10.0))
    assert set(longest) == {0.0, 10.0}


def test_a_loader_worker_that_has_ended_takes_its_cpu_time_with_it():
    assert NOTHING._replace(cpu_s=2.0, children_cpu_s=1.0).cpus_since(NOTHING._replace(children_cpu_s=5.0), 4.0) == 0.5
