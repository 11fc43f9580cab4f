"""How the ranks find and check one another before they form a process group."""
