"""What travels between this machine and another: the code there, a run's model, logs and report back."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from slurmddp.config.configuration_files import SENT
from slurmddp.errors import UsageError
from slurmddp.remote.connection import Host
from slurmddp.runs.layout import RunDir
from slurmddp.script.quoting import shell
from slurmddp.text import count

MOST_BYTES: Final = 100 * 10**6
"""Of more than this it is asked first."""
_UPDATE: Final = f"""here=$(pwd -P)
while IFS= read -r -d '' path && [ -n "$path" ]; do
  folder=./$path; folder=${{folder%/*}}
  [ "$(cd -P -- "$folder" 2>/dev/null && pwd -P)" = "$here${{folder#.}}" ] && rm -f -- "./$path"
done
cat >{SENT}.new && mv -f {SENT}.new {SENT}"""
"""Removes files, unless a folder on the way to them is a link by now, and writes the list of what is sent.

The input is their paths, an empty one, and the list; each path ends with a NUL, so that a cut one is told from a whole.
"""
_RESULTS: Final = ("/*=*/", "model.pt", "rank-*.pt", "report.html", "logs/", "logs/**")
"""Of a run, and of each setting of a sweep."""


def send_code(host: Host, announce: Callable[[str, int], None]) -> None:
    """Send what git tracks or does not ignore; `announce` gets what and its bytes, and raises if the user refuses.

    The list of what was sent is kept there: size, time, mode and path of each file. Raises ClusterError.
    """
    from slurmddp.script.snapshot import list_code  # noqa: PLC0415 slow to load, and only a few commands send code

    top, folder = host.top, f"{host.folder}/{host.top.name}"
    enter = f"mkdir -p -- {shell(folder)} && cd -- {shell(folder)}"
    before, now = {*host.run(f"{enter} && {{ cat {SENT} 2>/dev/null || :; }}").split("\0")[:-1]}, {}
    for path in list_code(top):
        info = (top / path).lstat()
        now[f"{info.st_size} {info.st_mtime_ns} {info.st_mode:o} {path}"] = path
    gone = {line.split(" ", 3)[3] for line in before} - {*now.values()}
    changed = now.keys() - before
    if changed or gone:
        size = sum(int(line.split(" ")[0]) for line in changed)
        what = f"send {count(len(changed), 'file')} with {size / 1e6:.1f} MB to {host.name}:{folder}"
        announce(f"{what}{f', and remove {len(gone)} there' * bool(gone)}", size)
        unsent = (f"0 0 0 {now[line]}" if line in changed else line for line in now)
        host.run(f"{enter} && {{ {_UPDATE}; }}", _join(*gone, "", *unsent))
    host.rsync(folder, "-z", "--from0", "--files-from=-", f"{top}/", "HOST:", given=_join(*now.values()))
    if changed or gone:
        host.run(f"{enter} && {{ {_UPDATE}; }}", _join("", *now))


def _join(*lines: str) -> bytes:
    return os.fsencode("".join(f"{line}\0" for line in lines))


def find_run(page: str, runs_dir: str) -> RunDir:
    """Return the folder here of the run of a page there; only the names of the run and of its sweep count of that."""
    *_, sweep, name = "", "", *(part.lstrip(".") for part in Path(page).parent.parts)
    return RunDir.named(runs_dir, f"{sweep}/{name}" if "=" in name and sweep else name or "run")


def pull_run(host: Host, page: str, runs_dir: str) -> Path:
    """Fetch the run of a page there, whole or not at all; return its folder here.

    What a cut connection has left in a hidden folder is used by the next try. Raises UsageError where the folder is
    that of a run of this machine, ClusterError when the connection is lost.
    """
    run = find_run(page, runs_dir)
    part = RunDir(run.path.with_name(f".{run.path.name}.pulled"))
    if run.submissions.exists() or run.events.exists():
        raise UsageError(f"{run.path} is a run of this machine; give another folder: --runs-dir DIR")
    part.create()
    includes = (f"--include={one}" for one in _RESULTS)
    host.rsync(str(Path(page).parent), "--partial", *includes, "--exclude=*", "HOST:", f"{part.path}/")
    shutil.rmtree(run.path, ignore_errors=True)
    part.path.rename(run.path)
    return run.path
