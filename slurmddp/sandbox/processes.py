"""Commands that must succeed, from inside a sandbox."""

import subprocess

from slurmddp.errors import ClusterError


def run(*command: str) -> None:
    """Run a command to its end; raise ClusterError with its own words when it fails."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise ClusterError(f"{' '.join(command)}: {(result.stderr or result.stdout).strip()}")


def ip(words: str) -> None:
    """Run `ip` with these words."""
    run("ip", *words.split())
