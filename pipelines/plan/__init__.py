"""Planning for a TPU without a TPU: the real TPU compiler compiles every stage of a model and says what it needs.

topologies.py knows the chips, abstract.py lists the programs of a model that its family described from configs alone,
compiler.py compiles them and caches the answers, hlo.py parses these, estimate.py turns them into time, placement.py
says what to do when a model does not fit, planner.py combines all of it, and report.py shows it. schedule.py analyses
the attention kernel, which the compiler's estimates do not cover. packing.py saves the executables themselves for a
worker that has such chips.
"""
