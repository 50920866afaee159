"""Models: the catalogue, its entries and sizes, and what lies in a user's own folder."""
