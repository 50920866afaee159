"""A family of one linear layer: what test_a_new_family.py adds to the product, and no more."""
