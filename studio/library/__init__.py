"""The library: finished outputs and pictures to start from, as whole files, and as rows to search.

An output's file carries its recipe; foreign/ reads it back, also out of other programs' files.
"""
