"""A job's configuration: its options, the files and variables that set them, and the checked value JobSpec."""
