"""The library: finished outputs and pictures to start from, as whole files, and as rows to search.

An output's file carries its recipe.
"""
