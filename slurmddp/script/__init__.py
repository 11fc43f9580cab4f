"""What templates render: the batch script of a job, with the code snapshot that it runs, and a first job file."""
