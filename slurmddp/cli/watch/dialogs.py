"""What covers the screen for a moment: a question, the list of keys, the text of a search."""

from typing import ClassVar, Final

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import Input, Static

KEYS: Final = """\
↑ ↓  k j    choose a job; in the output, scroll
← →         choose the rank whose output is shown
l  Enter    show the output on the whole screen, and back
/           search the output; n: match before, N: after
End         follow the output, which stands still above its end
Tab         go to the events, the output, the jobs
c           cancel the chosen job, after confirmation
r           requeue the chosen job, after confirmation
s           ask Slurm now; it is asked every 10 s
q  Ctrl-C   quit; jobs go on"""


class KeyDialog(ModalScreen[bool]):
    """Shows a text until a key is pressed; returns whether the key was y."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = Text(text)

    def compose(self) -> ComposeResult:
        """Show the text."""
        yield Static(self._text)

    def on_key(self, event: events.Key) -> None:
        """Take the answer."""
        event.stop()
        self.dismiss(event.key in ("y", "Y"))


class SearchBox(ModalScreen[str]):
    """Asks for the text of a search; returns an empty one when the user gives up."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss('')", "Back")]

    def compose(self) -> ComposeResult:
        """Show a line of input."""
        yield Input(placeholder="search the output, from its end")

    def on_mount(self) -> None:
        """Take the keys from now on."""
        self.set_focus(self.query_one(Input))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the text."""
        self.dismiss(event.value)
