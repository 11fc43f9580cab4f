"""The batch script of a job: rendered from templates, with the code snapshot that it runs."""
