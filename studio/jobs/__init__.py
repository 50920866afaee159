"""The queue: the jobs that people asked for, their outcomes, and the state of the workers.

`queue` is people's side and `claims` the worker's; both change a job only through `job.move`, which writes the event in
the same transaction.
"""
