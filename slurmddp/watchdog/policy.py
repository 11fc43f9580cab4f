"""Decides whether a training hangs, and which ranks stand out, by the beats of its ranks. Pure.

A training hangs when for the time-out no rank has made progress or worked, and at least one waits in a collective. A
rank works while it, or a process that it has started, uses the CPU or moves data. docs/hangs.md has it in plain words.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from slurmddp.slurm.hostlist import format_ranges
from slurmddp.text import count
from slurmddp.watchdog.beats import Beat
from slurmddp.watchdog.stack_groups import find_program, format_place
from slurmddp.watchdog.usage import Used

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
_STATES: Final = {"T": "stopped", "t": "stopped by a debugger", "D": "blocked in the kernel"}


class Track(NamedTuple):
    """A rank as the supervisor has followed it. Times are those of the supervisor's clock."""

    beat: Beat
    """The newest."""
    at: float
    """When it came."""
    active_at: float
    """When the rank last made progress or worked."""
    busy_at: float
    """When it last used the CPU in the same few lines, or was blocked in the kernel: it works, or never ends."""
    done_at: float
    """When it last finished a step."""
    longest_s: float = 0.0
    """The longest step from the third on: before, programs compile. 0 until then."""
    found: str = ""
    """What a look at the process has shown, as `stopped`, since its last beat; empty without a look."""

    def is_silent(self, now: float) -> bool:
        """Return whether beats are missing."""
        return now - self.at > SILENT_BEATS * self.beat.every_s


class Hang(NamedTuple):
    """A training that makes no progress."""

    since: float
    """When a rank last made progress or worked."""
    text: str
    """`rank 3 on n2 in load() at data.py:40, while 7 ranks waited in all_reduce`."""
    odd: tuple[Beat, ...] = ()
    """The ranks that stand out; none when it is not clear."""
    unseen: tuple[Track, ...] = ()
    """Silent ranks: a look at their processes comes before the judgement."""
    is_certain: bool = True
    """Whether ranks wait for one that does nothing; a training in which all are still may be meant to be."""


def judge_work(
    before: Used, after: Used, took_s: float, *, same_s: float, waits: bool, spins: bool
) -> tuple[bool, ...]:
    """Return whether a rank has worked in `took_s` seconds, and whether it may have.

    For `same_s` seconds its main thread was in one call; `waits` says that it waits in a collective, `spins` that to
    wait uses the CPU, as CUDA's does.
    """
    cpu = (after.cpu_s - before.cpu_s) / took_s
    if waits:
        return cpu >= BUSY and not spins, False  # the data of a collective move
    is_busy = after.cpus_since(before, took_s) >= BUSY
    moves = (after.moved_bytes - before.moved_bytes) / took_s >= MOVING
    return moves or (is_busy and (same_s > took_s or cpu < BUSY)), is_busy or after.is_blocked


def follow(track: "Track | None", beat: Beat, now: float) -> Track:
    """Return a rank's track with its new beat; what a silent rank did meanwhile is not known."""
    if track is None or track.beat.pid != beat.pid:
        return Track(beat, now, now, now, now)
    was_silent, progress = track.is_silent(now), beat.done != track.beat.done
    is_active = was_silent or progress or beat.works
    is_counted = progress and not was_silent and track.beat.done > 1
    return Track(
        beat,
        now,
        active_at=now if is_active else track.active_at,
        busy_at=now if is_active or beat.may_work else track.busy_at,
        done_at=now if was_silent or progress else track.done_at,
        longest_s=max(track.longest_s, now - track.done_at) if is_counted else track.longest_s,
    )


def note_look(track: Track, row: Mapping[str, Any], now: float) -> Track:
    """Return the track of a silent rank with what `look` shows of its process.

    A process that has used the CPU since its last beat works: one that keeps the interpreter's lock sends no beats. Not
    one that is stopped now: it has used the CPU before.
    """
    beat, state = track.beat._replace(cpu_s=row["cpu_s"]), row["state"]
    if state not in ("T", "t") and beat.cpu_s - track.beat.cpu_s >= BUSY * (now - track.at):
        return track._replace(beat=beat, at=now, active_at=now)
    if stack := row.get("stack"):
        at = stack[find_program([frame["file"] for frame in stack])]
        beat = beat._replace(place=format_place(at["file"], at["line"], at["function"]))
    return track._replace(beat=beat, found=_STATES.get(state, "silent" if len(state) == 1 else state))


def timeout_s(option: str, tracks: Iterable[Track]) -> float:
    """Return the time-out of a training by `--hang-timeout`: `auto`, `90`, `10m`, or empty for a warning alone."""
    if option[:1].isdigit():
        return float(option.rstrip("smh")) * _UNITS_S.get(option[-1], 1.0)
    has_begun = all(track.beat.done > 2 for track in tracks)  # noqa: PLR2004 - programs compile in the first two
    least_s = (AUTO_S if option else WARN_S) if has_begun else FIRST_STEP_S
    return max(least_s, *(LONG_STEPS * track.longest_s for track in tracks))


def judge(tracks: Collection[Track], timeout_s: float, now: float) -> "Hang | None":
    """Return what is wrong with the ranks of one training; None while all is well, or not known."""
    tracks = sorted(tracks, key=lambda track: track.beat.rank)
    live = [track for track in tracks if not track.is_silent(now)]
    if not live or len(tracks) < max(track.beat.world_size for track in live):
        return None
    spin_s, worked_at = SPIN_FACTOR * timeout_s, max(track.active_at for track in tracks)
    busy_at = [track.busy_at for track in live if min(now - worked_at, track.beat.few_s) < spin_s]
    since = max([worked_at, *busy_at])
    waiting = [track for track in live if track.beat.wait]
    if now - since < (timeout_s if waiting else max(STILL_S, spin_s)):
        return None
    if not waiting:
        return Hang(since, f"no rank does anything: {_describe(tracks)}", is_certain=False)
    if unseen := tuple(track for track in tracks if track.is_silent(now) and not track.found):
        return Hang(since, "", unseen=unseen)
    most = Counter((track.beat.wait, track.beat.place) for track in waiting).most_common(1)[0][0]
    others = [track for track in tracks if track not in waiting]
    odd = others or [track for track in waiting if (track.beat.wait, track.beat.place) != most]
    rest = [track for track in tracks if track not in odd]
    if not odd or len(odd) > len(rest) - (not others):  # of two halves that wait, none stands out
        return Hang(since, f"no rank stands out: {_describe(tracks)}")
    waits = ", ".join(dict.fromkeys(track.beat.wait for track in rest))
    text = f"{_describe(odd)}, while {count(len(rest), 'rank')} waited in {waits}"
    return Hang(since, text, tuple(track.beat for track in odd))


def _describe(tracks: Iterable[Track]) -> str:
    """Return where ranks are, those in the same place together."""
    groups: dict[str, list[Beat]] = {}
    for beat, found in ((track.beat, track.found) for track in tracks):
        doing = f"{found}, last " if found else f"waiting in {beat.wait}, " if beat.wait else ""
        groups.setdefault(f"{doing}in {beat.place}", []).append(beat)
    return "; ".join(f"{_name(beats)} {doing}" for doing, beats in groups.items())


def _name(beats: Collection[Beat]) -> str:
    hosts = {beat.host for beat in beats}
    where = hosts.pop() if len(hosts) == 1 else count(len(hosts), "node")
    return f"rank{'s' * (len(beats) > 1)} {format_ranges(sorted(beat.rank for beat in beats))} on {where}"
