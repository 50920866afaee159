"""What routes answer with, as types: the OpenAPI document, its examples and the tests are made of them.

A field that is not declared here is not part of the contract and never leaves the server; a new column of a table is
public only once its model says so. Times are seconds since 1970.
Not here: what routes are sent (beside each route), the shape of errors (errors.py).
"""
