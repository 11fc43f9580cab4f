"""What is known when nothing more is: an exception, a status. Data only."""

from typing import Final

from slurmddp.diagnose.model import Rule

RULES: Final = (
    Rule(
        key="exit-status",
        pattern=r"^exit status (?P<status>\d+)$",
        example="exit status 3",
        what="the program ended itself with status {status}",
        advice="the program's own last lines say why",
        general=True,
    ),
    Rule(
        key="refused",
        pattern=r"^Error: (?P<why>.+)",
        example="Error: rank 0 found no checkpoint that can be used, and says why",
        what="{why}",
        advice="it is said above what to do",
        again=None,
        general=True,
    ),
    Rule(
        key="exception",
        pattern=r"^(?P<error>[A-Za-z_][\w.]*(?:: .*|:)?)$",
        example="ValueError: batch 17 has a label of 12, there are 10 classes",
        what="the program raised {error}",
        advice="correct the program; the traceback says where",
        general=True,
    ),
)
