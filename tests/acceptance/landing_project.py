"""A small Python project with six stories: two conflict in a changelog, two are red only together."""

from collections.abc import Callable
from pathlib import Path

from tests.acceptance.program import commit_stories, write_story

FILES = {
    "CHANGELOG.md": "# Changelog\n\n- first version\n",
    "shop/__init__.py": "",
    "shop/prices.py": "RATE = 10\n\n\ndef tax(net):\n    return net * RATE // 100\n",
    "shop/total.py": "from shop.prices import tax\n\n\ndef total(net):\n    return net + tax(net)\n",
    "shop/label.py": "def label(name):\n    return name.title()\n",
    "tests/__init__.py": "",
    "tests/test_total.py": (
        "import unittest\n\nfrom shop.total import total\n\n\n"
        "class Total(unittest.TestCase):\n"
        "    def test_total(self):\n        self.assertEqual(total(100), 110)\n"
    ),
    "autopilot-multi.toml": 'verify = ["python3 -m unittest -q"]\n',
}

RENAMED = r"""sed -i 's/def tax(/def vat(/' shop/prices.py && sed -i 's/tax/vat/g' shop/total.py"""
USES_TAX = (
    r"""printf 'from shop.prices import tax\n\n\ndef invoice(net):\n    return f"{net} + {tax(net)}"\n' """
    r"""> shop/invoice.py && printf 'import unittest\n\nfrom shop.invoice import invoice\n\n\n"""
    r"""class Invoice(unittest.TestCase):\n    def test_invoice(self):\n"""
    r"""        self.assertEqual(invoice(100), "100 + 10")\n' > tests/test_invoice.py"""
)


def six_stories(make_repository: Callable[..., Path]) -> Path:
    """Make the project with its stories, committed."""
    repo = make_repository("shop", files=FILES)
    commands = {
        "a-search": "echo '- search' >> CHANGELOG.md",
        "b-mail": "echo '- mail' >> CHANGELOG.md",
        "c-vat": RENAMED,
        "d-invoice": USES_TAX,
        "e-label": "sed -i 's/title/upper/' shop/label.py",
        "f-docs": "echo '# Shop' > README.md",
    }
    for story_id, command in commands.items():
        write_story(repo, story_id, title=f"Story {story_id}", command=command)
    commit_stories(repo)
    return repo
