"""Stands in for an agent: makes the change of one story, `stand_in.py STORY`."""

import sys
from pathlib import Path

UNRELEASED = "## Unreleased\n\n"
SEARCH = '''"""Find things by name."""


def search(names: list[str], word: str) -> list[str]:
    """Return the names that contain a word."""
    return [name for name in names if word.lower() in name.lower()]
'''
MAIL = '''"""Letters to customers."""


def subject(order: int) -> str:
    """Return the subject of the letter about an order."""
    return f"Your order {order}"
'''
INVOICE = '''"""Papers to be paid."""

from shop.prices import tax


def invoice(net: int) -> str:
    """Return the line of an invoice."""
    return f"{net} + {tax(net)} tax"
'''
TEST = '''"""{title}"""

import unittest

from shop.{module} import {name}


class {title}Test(unittest.TestCase):
    """What the story promises."""

    def test_it(self) -> None:
        """It does."""
        self.assertEqual({name}({arguments}), {result})
'''


def main(story: str) -> None:
    """Make the change of a story in the current folder."""
    match story:
        case "search":
            _module("search", "search", SEARCH, '["Tea", "Coffee"], "tea"', '["Tea"]')
            _change("CHANGELOG.md", UNRELEASED, f"{UNRELEASED}- Things can be searched by name.\n")
        case "mail":
            _module("mail", "subject", MAIL, "7", '"Your order 7"')
            _change("CHANGELOG.md", UNRELEASED, f"{UNRELEASED}- Customers get a letter.\n")
        case "vat":
            _change("shop/prices.py", "def tax(", "def vat(")
            _change("shop/total.py", "tax", "vat")
        case "invoice":
            _module("invoice", "invoice", INVOICE, "1000", '"1000 + 200 tax"')
        case "label":
            _change("shop/label.py", "name.title()", "name.upper()")
        case "readme":
            Path("docs.md").write_text("# The shop\n\nPrices are in cents.\n")
        case _:
            sys.exit(f"no such story: {story}")


def _module(module: str, name: str, text: str, arguments: str, result: str) -> None:
    """Add a module with its test."""
    Path("shop", f"{module}.py").write_text(text)
    test = TEST.format(title=module.title(), module=module, name=name, arguments=arguments, result=result)
    Path("tests", f"test_{module}.py").write_text(test)


def _change(path: str, old: str, new: str) -> None:
    """Replace text in a file."""
    Path(path).write_text(Path(path).read_text().replace(old, new))


main(sys.argv[1])
