"""The command lines of a sandbox's daemons, which the sandbox starts by itself. Text only."""

from slurmddp.sandbox.state_directory import Files

_SMALL_DATABASE = (
    "--no-defaults",
    "--user=root",
    "--innodb-log-file-size=8M",
    "--innodb-doublewrite=0",
    "--innodb-flush-method=nosync",
)
"""The database ends with the sandbox, so that nothing must survive a power failure."""


def munged(files: Files) -> list[str]:
    """Return the command of the authentication daemon; `--force` allows a folder in /tmp."""
    return [
        *("munged", "--foreground", "--force"),
        f"--socket={files.munge_socket}",
        f"--key-file={files.munge_key}",
        f"--pid-file={files.run('munged.pid')}",
        f"--seed-file={files.run('munged.seed')}",
    ]


def make_database(files: Files) -> list[str]:
    """Return the command that creates an empty database; access is limited by the folder of its socket."""
    return [
        *("mariadb-install-db", *_SMALL_DATABASE, f"--datadir={files.database}"),
        *("--skip-test-db", "--skip-name-resolve", "--auth-root-authentication-method=normal"),
    ]


def mariadbd(files: Files) -> list[str]:
    """Return the command of the database."""
    own = (f"--datadir={files.database}", f"--socket={files.database_socket}", "--skip-networking")
    return ["mariadbd", *_SMALL_DATABASE, *own, f"--log-error={files.log('mariadbd')}"]


def slurmdbd(files: Files) -> list[str]:
    """Return the command of the accounting daemon, which reads the database's socket only from its environment."""
    return ["env", f"MYSQL_UNIX_PORT={files.database_socket}", "slurmdbd", "-D"]


def slurmctld() -> list[str]:
    """Return the command of the controller."""
    return ["slurmctld", "-D"]


def slurmd(node: str) -> list[str]:
    """Return the command of a node's daemon."""
    return ["slurmd", "-D", "-N", node]
