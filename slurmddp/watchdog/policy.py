"""Decides whether a training hangs, and which ranks stand out, by the beats of its ranks. Pure.

A training hangs when for the time-out no rank has made progress or worked, and at least one waits in a collective. A
rank works while it, or a process that it has started, uses the CPU or moves data. docs/hangs.md has it in plain words.
"""

from __future__ import annotations
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from slurmddp.slurm.hostlist import format_ranges
from slurmddp.text import count

WARN_S: Final = 300.0
"""The time-out where none is given; it is a warning then."""
AUTO_S: Final = 45.0
"""The shortest time-out of `--hang-timeout auto`."""
FIRST_STEP_S: Final = 600.0
"""The shortest of both until each rank has made a step: programs load, compile and download."""
LONG_STEPS: Final = 8.0
"""The time-out is at least so many times the longest step."""
SPIN_FACTOR: Final = 4.0
"""A rank that uses the CPU in the same few lines, or is blocked in the kernel, for so many time-outs does not work."""
STILL_S: Final = 1800.0
"""After this time, and SPIN_FACTOR time-outs, a training is named in which no rank works or waits for another."""
SILENT_BEATS: Final = 3
"""A rank is silent when none has come in the time of so many beats."""
BUSY: Final = 0.05
"""The share of a CPU from which on a process works."""
MOVING: Final = 16384.0
"""Bytes a second read or written from which on a process works."""
_UNITS_S: Final = {"m": 60.0, "h": 3600.0}


class Beat(NamedTuple):
    """What a rank says of itself every few seconds."""

    rank: int
    world_size: int
    step: str
    """The step of Slurm that the rank is in: a script may start several trainings. Empty without one."""
    host: str
    pid: int
    began: float
    """When the process began, in seconds since 1970."""
    age_s: float
    """Since then, by a clock that is not set."""
    every_s: float
    """Seconds between two beats."""
    steps: int = 0
    """Steps of an optimizer or of slurmddp's loop."""
    batches: int = 0
    """Batches from a DataLoader."""
    longest_s: float = 0.0
    """The longest time without a step or batch, from the first step on."""
    place: str = ""
    """Where the main thread is: the innermost function outside of torch and the standard library, `f() at x.py:7`."""
    wait: str = ""
    """The collective in which the main thread waits; empty elsewhere."""
    same_s: float = 0.0
    """For how long the main thread has been in one call."""
    few_s: float = 0.0
    """For how long it has been seen in three lines at most."""
    cpu_s: float = 0.0
    """CPU time of the process."""
    children_cpu_s: float = 0.0
    """CPU time of the processes that it has started."""
    moved_bytes: int = 0
    """What all of them have read and written."""
    is_blocked: bool = False
    """Whether a thread or a process below is blocked in the kernel, as by fsync(2)."""
    spins_to_wait: bool = False
    """Whether waiting uses the CPU, as CUDA's does."""
    has_ended: bool = False
    """Whether the program has ended on this rank."""


class Track(NamedTuple):
    """A rank as the supervisor has followed it. Times are those of the supervisor's clock."""

    beat: Beat
    """The newest."""
    at: float
    """When it came."""
    active_at: float
    """When the rank last made progress or worked."""
    spins_at: float = float("-inf")
    """When it last used the CPU in the same few lines, or was blocked in the kernel: it works, or never ends."""
    found: str = ""
    """What a look at the process has shown, as `stopped`, since its last beat; empty without a look."""

    @property
    def name(self) -> str:
        """Rank and host."""
        return f"rank {self.beat.rank} on {self.beat.host}"

    def is_silent(self, now: float) -> bool:
        """Return whether beats are missing; a program that has ended sends none."""
        return not self.beat.has_ended and now - self.at > SILENT_BEATS * self.beat.every_s


class Timeout(NamedTuple):
    """The time-out of a job."""

    least_s: float = WARN_S
    is_fixed: bool = False
    """Whether the user has given it in seconds."""
    acts: bool = False
    """Whether a training that hangs is ended."""

    @classmethod
    def parse(cls, text: str) -> Timeout:
        """Return the time-out of `--hang-timeout`: `auto`, `90`, `10m`, or empty for a warning alone."""
        if text in ("", "auto"):
            return cls(AUTO_S, acts=True) if text else cls()
        return cls(float(text.rstrip("smh")) * _UNITS_S.get(text[-1], 1.0), is_fixed=True, acts=True)

    def seconds(self, tracks: Collection[Track]) -> float:
        """Return the seconds for a training."""
        if self.is_fixed:
            return self.least_s
        steps = all(track.beat.steps or track.beat.batches > 1 or track.beat.has_ended for track in tracks)
        longest_s = max((track.beat.longest_s for track in tracks), default=0.0)
        return max(self.least_s if steps else FIRST_STEP_S, LONG_STEPS * longest_s)


class Hang(NamedTuple):
    """A training that makes no progress."""

    since: float
    """When a rank last made progress or worked."""
    text: str
    """`rank 3 on n2 in load() at data.py:40, while 7 ranks waited in all_reduce`."""
    ranks: tuple[Track, ...] = ()
    """The ranks that stand out; none when it is not clear."""
    is_certain: bool = True
    """Whether ranks wait for one that does nothing; a training in which all are still may be meant to be."""


class Unclear(NamedTuple):
    """A training that may hang: the processes of silent ranks must be looked at."""

    silent: tuple[Track, ...]


def follow(track: Track | None, beat: Beat, now: float) -> Track:
    """Return a rank's track with its new beat. Beats of an earlier process, and old ones, change nothing."""
    if track is None or beat.began > track.beat.began:
        return Track(beat, now, now)
    before = track.beat
    took_s = beat.age_s - before.age_s
    if beat.began < before.began or took_s <= 0:
        return track
    active_at, spins_at = track.active_at, track.spins_at
    cpu = (beat.cpu_s - before.cpu_s) / took_s
    all_cpu = cpu + max(0.0, beat.children_cpu_s - before.children_cpu_s) / took_s
    if (
        track.is_silent(now)  # what it did meanwhile is not known
        or (beat.steps, beat.batches) != (before.steps, before.batches)
        or (beat.wait and not beat.spins_to_wait and cpu >= BUSY)  # the data of a collective move
        or (not beat.wait and (beat.moved_bytes - before.moved_bytes) / took_s >= MOVING)
        or (not beat.wait and all_cpu >= BUSY and (beat.same_s > took_s or cpu < BUSY))
    ):
        active_at = now
    elif not beat.wait and (all_cpu >= BUSY or beat.is_blocked):
        spins_at = now
    return Track(beat, now, active_at, spins_at)


def note_look(track: Track, state: str, cpu_s: float | None, now: float) -> Track:
    """Return the track of a silent rank whose process was looked at; `cpu_s` is its CPU time, None without a process.

    `state` says in a word how it was found. A process that has used the CPU since its last beat works: one that keeps
    the interpreter's lock sends no beats.
    """
    if cpu_s is not None and cpu_s - track.beat.cpu_s >= BUSY * (now - track.at):
        return track._replace(beat=track.beat._replace(cpu_s=cpu_s), at=now, active_at=now)
    return track._replace(found=state)


def forgive(track: Track, now: float) -> Track:
    """Return the track after a pause of the supervisor itself, in which beats were lost."""
    return track._replace(at=now, active_at=now)


def judge(tracks: Collection[Track], timeout_s: float, now: float) -> Hang | Unclear | None:
    """Return what is wrong with the ranks of one training; None while all is well, or not known."""
    live = [track for track in tracks if not (track.beat.has_ended or track.is_silent(now))]
    if not live or len(tracks) < max(track.beat.world_size for track in live):
        return None
    spin_s, worked_at = SPIN_FACTOR * timeout_s, max(track.active_at for track in tracks)
    busy_at = [track.spins_at for track in live if min(now - worked_at, track.beat.few_s) < spin_s]
    since = max([worked_at, *busy_at])
    if now - since < timeout_s:
        return None
    waiting = [track for track in live if track.beat.wait]
    if not waiting:
        places = describe_places(tracks, now)
        is_still = now - since >= max(STILL_S, spin_s)
        return Hang(since, f"no rank does anything: {places}", is_certain=False) if is_still else None
    silent = [track for track in tracks if track.is_silent(now) and not track.found]
    if silent:
        return Unclear(tuple(silent))
    ranks = {track.beat.rank for track in waiting}
    others = [track for track in tracks if track.beat.rank not in ranks]
    if others:
        odd, rest = others, waiting
    else:
        key = Counter((track.beat.wait, track.beat.place) for track in waiting).most_common(1)[0][0]
        odd = [track for track in waiting if (track.beat.wait, track.beat.place) != key]
        rest = [track for track in waiting if (track.beat.wait, track.beat.place) == key]
    if not odd or len(odd) > len(rest) or (len(odd) == len(rest) and not others):
        return Hang(since, f"no rank stands out: {describe_places(tracks, now)}")
    return Hang(since, f"{_describe_odd(odd, now)}, while {_describe_waits(rest)}", tuple(odd))


def describe_places(tracks: Iterable[Track], now: float) -> str:
    """Return where ranks are, those in the same place together."""
    by_place: dict[str, list[int]] = {}
    for track in tracks:
        by_place.setdefault(_describe_doing(track, now), []).append(track.beat.rank)
    return "; ".join(f"{_list(ranks)} {place}" for place, ranks in by_place.items())


def _describe_odd(odd: list[Track], now: float) -> str:
    if len(odd) == 1:
        return f"{odd[0].name} {_describe_doing(odd[0], now)}"
    hosts = dict.fromkeys(track.beat.host for track in odd)
    what = {_describe_doing(track, now) for track in odd}
    doing = what.pop() if len(what) == 1 else f"not there, rank {odd[0].beat.rank} {_describe_doing(odd[0], now)}"
    return f"{_list(track.beat.rank for track in odd)} on {', '.join(hosts)} {doing}"


def _describe_doing(track: Track, now: float) -> str:
    beat = track.beat
    if beat.has_ended:
        return "whose program has ended"
    where = f"in {beat.place}" if beat.place else "outside of the program"
    if track.found and track.is_silent(now):
        return f"{track.found}, last {where}"
    return f"waiting in {beat.wait}, {where}" if beat.wait else where


def _describe_waits(waiting: list[Track]) -> str:
    waits = dict.fromkeys(track.beat.wait for track in waiting)
    return f"{count(len(waiting), 'rank')} waited in {', '.join(waits)}"


def _list(ranks: Iterable[int]) -> str:
    numbers = sorted(ranks)
    return f"rank{'s' * (len(numbers) > 1)} {format_ranges(numbers)}"


def judge_all(tracks: Mapping[tuple[str, int], Track], timeout: Timeout, now: float) -> dict[str, Hang | Unclear]:
    """Return what is wrong, by step; the key of a track is its step and its rank."""
    by_step: dict[str, list[Track]] = {}
    for (step, _), track in sorted(tracks.items()):
        by_step.setdefault(step, []).append(track)
    found = {step: judge(some, timeout.seconds(some), now) for step, some in by_step.items()}
    return {step: verdict for step, verdict in found.items() if verdict}
