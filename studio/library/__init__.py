"""The library: finished outputs and input pictures, stored as files and as searchable rows.

An output's file carries its recipe; foreign/ reads recipes back, also from other programs' files.
"""
