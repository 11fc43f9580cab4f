"""Inside the job: who a rank is, how ranks meet, and how they end. Imports no room above `runs`."""
