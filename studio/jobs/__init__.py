"""The queue: what people asked for, what became of it, and what the worker is doing.

`queue` is people's side and `claims` the worker's; both change a job only through `job.move`, which writes the event in
the same transaction.
"""
