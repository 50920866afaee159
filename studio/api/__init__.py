"""REST, on the same port as the page, for its scripts and for those of people, under one contract."""
