"""Files that belong to another user."""

import os


def foreign(path, monkeypatch):
    """Make a file somebody else's; without root it is us who become somebody else."""
    if os.getuid() == 0:
        os.chown(path, 12345, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
