"""Totals and labels."""

import unittest

from shop.label import label
from shop.total import total


class ShopTest(unittest.TestCase):
    """What the shop promises today."""

    def test_total(self) -> None:
        """A total is the net price and its tax."""
        self.assertEqual(total(1000), 1200)

    def test_label(self) -> None:
        """A label is easy to read, however the name was typed."""
        self.assertEqual(label("ada lovelace").lower(), "ada lovelace")
