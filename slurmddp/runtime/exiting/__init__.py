"""How a rank ends: its exit code, its exit record, and the dumps for the diagnosis."""
