"""How a rank learns that it must stop, and what it does in each phase."""
