"""Sandboxes with slurmdbd, where it works."""

import pytest

from slurmddp import sandbox
from slurmddp.errors import ClusterError


def up_with_accounting(plan: sandbox.Plan) -> sandbox.Sandbox:
    """Start the sandbox; skip where slurmdbd cannot ask its database.

    libmariadb 11.8.9 of Debian trixie and forky answers `select @var := concat('')` with "Number of columns in result
    (=1) set exceeds maximum allowed number of columns (=0)", and slurmdbd 24.11.5 and 26.05.5 then end.
    """
    try:
        return sandbox.up(plan, die_with_parent=True)
    except ClusterError as error:
        if "_check_mysql_concat_is_sane" not in str(error):
            raise
        pytest.skip("slurmdbd does not work with this Debian's MariaDB client")
