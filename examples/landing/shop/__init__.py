"""A small shop: prices, totals and labels."""
