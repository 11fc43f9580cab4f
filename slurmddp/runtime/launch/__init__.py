"""How the processes of the ranks are started, and how each learns its rank and its addresses."""
