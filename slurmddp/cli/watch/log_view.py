"""Lines of text that follow their end while it is on the screen, and can be searched."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip


class LogView(ScrollView, can_focus=True):
    """The last lines of a text; they stand still while the user reads further up, or looks at a match."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("k", "scroll_up"),
        ("j", "scroll_down"),
        ("shift+left", "scroll_left"),
        ("shift+right", "scroll_right"),
        ("left", "app.change_rank(-1)"),
        ("right", "app.change_rank(1)"),
    ]

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self._lines: Sequence[Text] = ()
        self._wanted, self._match = "", -1
        self._follows = True

    def show(self, lines: Sequence[Text], *, restart: bool) -> None:
        """Show these lines; with `restart` go to their end, and forget the search."""
        if restart:
            self._wanted, self._match, self._follows = "", -1, True
        if not self._follows or self._match >= 0:
            return
        if lines != self._lines:
            self._lines = lines
            self.virtual_size = Size(max((line.cell_len for line in lines), default=0), len(lines))
            self.refresh()
        self.scroll_end(animate=False, force=True, immediate=True, x_axis=False)  # later, it would undo a search

    def release_anchor(self) -> None:
        """Stand still: the user scrolls, or a search does."""
        super().release_anchor()
        self._follows = False

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow the end when the user has come back to it."""
        super().watch_scroll_y(old_value, new_value)
        self._follows = self._follows or new_value >= self.max_scroll_y

    def action_scroll_end(self) -> None:
        """Go to the end, and follow it again."""
        self._match, self._follows = -1, True
        super().action_scroll_end()

    def search(self, text: str) -> bool:
        """Mark a text, in upper or lower case, and go to its last line; return whether there is one."""
        self._wanted, self._match = text.lower(), -1
        self.refresh()
        return self.go_to_match(-1)

    def go_to_match(self, by: int) -> bool:
        """Go to the next line with the text, or to the one before for -1; return whether there is one."""
        at = (self._match if self._match >= 0 else len(self._lines)) + by
        while self._wanted and 0 <= at < len(self._lines):
            if self._wanted in self._lines[at].plain.lower():
                self._match = at
                self.scroll_to(y=at - self.size.height // 2, animate=False)
                return True
            at += by
        return False

    def render_line(self, y: int) -> Strip:
        """Return a line of the screen."""
        left, top = self.scroll_offset
        line = self._lines[top + y].copy() if top + y < len(self._lines) else Text()
        if self._wanted:
            line.highlight_words([self._wanted], "reverse bold", case_sensitive=False)
        strip = Strip(line.render(self.app.console)).crop_extend(left, left + self.size.width, None)
        return strip.apply_style(self.rich_style)
