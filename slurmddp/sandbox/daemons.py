"""The command lines of a sandbox's daemons. Text only."""

from slurmddp.sandbox.state_directory import Files

_SMALL_DATABASE = (
    "--no-defaults",
    "--user=root",
    "--innodb-log-file-size=8M",
    "--innodb-doublewrite=0",
    "--innodb-flush-method=nosync",
)
"""It ends with the sandbox: nothing in it has to survive a power cut."""


def munged(files: Files) -> list[str]:
    """Return the command of the daemon that vouches for users; `--force`: its folder may lie in /tmp."""
    return [
        *("munged", "--foreground", "--force"),
        f"--socket={files.munge_socket}",
        f"--key-file={files.munge_key}",
        f"--pid-file={files.run('munged.pid')}",
        f"--seed-file={files.run('munged.seed')}",
    ]


def make_database(files: Files) -> list[str]:
    """Return the command that makes an empty database, open to whoever reaches its socket."""
    return [
        *("mariadb-install-db", *_SMALL_DATABASE, f"--datadir={files.database}"),
        *("--skip-test-db", "--skip-name-resolve", "--auth-root-authentication-method=normal"),
    ]


def mariadbd(files: Files) -> list[str]:
    """Return the command of the database."""
    own = (f"--datadir={files.database}", f"--socket={files.database_socket}", "--skip-networking")
    return ["mariadbd", *_SMALL_DATABASE, *own, f"--log-error={files.log('mariadbd')}"]


def slurmdbd(files: Files) -> list[str]:
    """Return the command of the accounting daemon, which takes the database's socket from its environment alone."""
    return ["env", f"MYSQL_UNIX_PORT={files.database_socket}", "slurmdbd", "-D"]


def slurmctld() -> list[str]:
    """Return the command of the controller."""
    return ["slurmctld", "-D"]
