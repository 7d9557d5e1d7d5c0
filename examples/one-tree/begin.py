"""Create a monorepo of forty small packages, and a backlog with one story per package: `begin.py FOLDER`."""

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

PACKAGES = """
accounts: Who the customers are.
addresses: Where things go.
audit: Who did what.
auth: Lets people in.
banners: What is shown on top.
basket: What a customer is about to buy.
billing: What a customer owes.
blog: News of the shop.
bundles: Things sold together.
catalog: What there is to buy.
chat: Talks with customers.
coupons: Codes that make it cheaper.
currency: Money of many countries.
delivery: When it arrives.
discounts: Less to pay.
exports: Lists for others.
faq: Answers to what many ask.
fraud: Orders that look odd.
gifts: Vouchers and wrapping.
images: Pictures of things.
imports: Lists from others.
invoices: Papers to be paid.
labels: What is stuck on parcels.
logistics: From there to here.
loyalty: Points for coming back.
mail: Letters to customers.
orders: What was bought.
payments: How it is paid.
pricing: What it costs.
profiles: What customers say of themselves.
refunds: Money that goes back.
reports: Numbers for the owners.
returns: Things that come back.
reviews: What customers think.
search: Finding things.
shipping: Who carries it.
stock: How much is there.
suppliers: Who sells to the shop.
taxes: What the state gets.
wishlist: What a customer would like.
"""

SETUP = """\
[metadata]
name = shop-{name}
version = 1.4.0
description = {words}

[options]
python_requires = >=3.9
py_modules = shop_{name}
install_requires =
    requests>=2.28
"""

MODULE = """\
def motto() -> str:
    return "{words}"
"""

TEST = """\
import unittest

from shop_{name} import motto


class Test(unittest.TestCase):
    def test_motto(self) -> None:
        self.assertTrue(motto().endswith("."))
"""

STORY = """\
  - id: {name}
    title: Describe {name} in pyproject.toml
    command: python3 -B tools/to_pyproject.py packages/{name}
    verify: [python3 -B tools/check.py packages/{name}]
"""


def main(root: Path) -> None:
    shutil.copytree(HERE / "tools", root / "tools")
    shutil.copy(HERE / "autopilot-multi.toml", root)
    stories = "stories:\n"
    for line in PACKAGES.split("\n")[1:-1]:
        name, words = line.split(": ")
        package = root / "packages" / name
        package.mkdir(parents=True)
        for path, text in (("setup.cfg", SETUP), (f"shop_{name}.py", MODULE), (f"test_{name}.py", TEST)):
            (package / path).write_text(text.format(name=name, words=words))
        stories += STORY.format(name=name)
    (root / "stories").mkdir()
    (root / "stories" / "pyproject.yaml").write_text(stories)
    for command in ("init --quiet --initial-branch=main", "add --all", "commit --quiet --message=Begin"):
        subprocess.run(["git", *command.split()], cwd=root, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
