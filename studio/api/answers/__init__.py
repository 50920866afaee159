"""Response models of the routes; the OpenAPI document, its examples and the tests are derived from them.

A field that is not declared here is not part of the contract and never leaves the server; a new column of a table is
public only once its model declares it. Times are seconds since 1970.
Not here: request models (beside each route), the shape of errors (errors.py).
"""
