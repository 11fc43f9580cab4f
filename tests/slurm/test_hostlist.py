"""Node lists in full, as scontrol writes them."""

import pytest

from slurmddp.errors import UsageError
from slurmddp.slurm.hostlist import expand, format_ranges

LISTS = ["n1", "n[1-3],m2", "n[08-11,3]", "a-[1-2]-b[7,9],c", "login,n[001]"]


@pytest.mark.parametrize("text", LISTS)
def test_the_names_are_scontrols(slurm, text):
    assert list(expand(text)) == slurm("scontrol", "show", "hostnames", text).split()


@pytest.mark.parametrize(
    "text", ["", "n[1", "n]1", "n[3-1]", "n[a]", "n1,,n2", ",n1", "n 1", "n[1-99999999]", "n[]", "n[1-9999]x[1-9999]"]
)
def test_what_is_no_list_is_refused(text):
    with pytest.raises(UsageError, match="is not a list of nodes"):
        expand(text)


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 5, 7, 8], "0-2,5,7-8")])
def test_numbers_are_written_as_ranges(numbers, text):
    assert format_ranges(numbers) == text
