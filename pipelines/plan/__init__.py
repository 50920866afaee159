"""Planning for a TPU without a TPU: every stage of a model, compiled by the real TPU compiler, and what it says.

topologies.py knows the chips, abstract.py lists the programs of a model that its family described from configs alone,
compiler.py compiles them and keeps the answers, hlo.py reads them, estimate.py turns them into time, placement.py says
what to do when a model does not fit, planner.py is the way through all of it, and report.py shows it. schedule.py looks
into the attention kernel, where the compiler's estimates do not reach. packing.py keeps the executables themselves, for
a worker that has such chips.
"""
