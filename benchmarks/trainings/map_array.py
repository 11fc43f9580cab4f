"""Submit many calls of a function as one array by submitit: map_array.py JOBS."""

import sys

import submitit

executor = submitit.SlurmExecutor(folder="submitit-array")
executor.update_parameters(job_name="many", time=60)
executor.map_array(abs, range(int(sys.argv[1])))
