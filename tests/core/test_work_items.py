"""What task and epic files say, and how ids are written into them."""

import pytest

from runner.core.work_items.documents import Kind, id_in, marked, read_items, renamed, with_references

EPICS = """# Epics

Tracker: pending

## Epic 1: Storage

Keeps it.

### Epic notes

## Epic: Shop window
- **Tracker**: SHOP-9

```
## Epic: not one
```
"""


def test_each_epic_of_a_file_is_a_work_item() -> None:
    """By headings that begin with Epic, or else by those of the second level; code is no heading."""
    first, second, third = read_items({"d/epics.md": EPICS})
    assert (first.kind, first.title, first.id) == (Kind.EPIC, "Storage", "")
    assert (second.title, third.title, third.id) == ("notes", "Shop window", "SHOP-9")
    plain = read_items({"epics.md": "# E\n## Same\n## Same\n"})
    assert [item.key for item in plain] == ["./epic/same", "./epic/same#2"]
    assert [item.title for item in read_items({"epics.md": "no heading"})] == ["Epic"]


def test_tasks_name_their_epic_and_what_they_wait_for() -> None:
    """By file name, number or id, in a line or below a heading; the number of a file is not in its key."""
    files = {
        "t/01_a.md": "# A\n",
        "t/02_b.md": "# B\n\n**Epic**: Storage\n\n## Dependencies\n\n- 01_a.md\n\n## More\n\n03\n",
        "t/SHOP-7_c.md": "# C\nTracker: SHOP-7\nDepends on: 01, 02 (2026-01-02)\n",
        "t/04_d.md": "# D\nBlocked by: SHOP-7\n",
    }
    a, b, c, d = read_items(files)
    assert (a.key, a.title, a.depends, a.epic) == ("t/a", "A", (), "")
    assert (b.depends, b.epic) == (("t/a",), "Storage")
    assert (c.key, c.id, c.depends) == ("t/c", "SHOP-7", ("t/a", "t/b"))
    assert d.depends == ("t/c",)


def test_files_of_one_name_are_told_apart_by_their_numbers() -> None:
    """Whichever of them has got its id already."""
    keys = [item.key for item in read_items({"t/01_x.md": "", "t/02_x.md": ""})]
    assert keys == ["t/x#01", "t/x#02"]
    assert [item.key for item in read_items({"t/AB-1_x.md": "", "t/02_x.md": ""})] == ["t/x#AB-1", "t/x#02"]


def test_ids_are_put_below_their_headings_and_stay() -> None:
    """A pending line gets the id, one with an id is left alone, and the rest of the file as well."""
    ids = {"d/epic/storage": "SHOP-1", "d/epic/notes": "SHOP-2", "d/epic/shop-window": "SHOP-3"}
    text = marked(EPICS, "d/epics.md", ids)
    assert [item.id for item in read_items({"d/epics.md": text})] == ["SHOP-1", "SHOP-2", "SHOP-9"]
    assert "pending" not in text
    assert marked(text, "d/epics.md", ids) == text
    assert marked("# T\n\nTracker: pending\n", "t/01_t.md", {"t/t": "XY-1"}) == "# T\n\nTracker: XY-1\n"
    assert marked("# T\n- **Tracker**: pending\n", "t/01_t.md", {"t/t": "12"}) == "# T\n- **Tracker**: 12\n"
    assert marked("# T\nTracker: XY-1\n", "t/01_t.md", {"t/t": "XY-2"}) == "# T\nTracker: XY-1\n"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("SHOP-12", "SHOP-12"),
        ("[A_B-1](https://x)", "A_B-1"),
        ("#7", "7"),
        ("pending", ""),
        ("none", ""),
        ("12th", ""),
    ],
)
def test_an_id_is_told_from_other_words(line: str, found: str) -> None:
    """What an agent wrote there may be anything."""
    assert id_in(f"# T\n\nTracker: {line}\n") == found


def test_references_follow_the_new_names() -> None:
    """Whole names everywhere, bare numbers only in lists of dependencies."""
    items = read_items({"t/01_a.md": "", "t/02_a_b.md": ""})
    moves = [(items[0], "SHOP-1"), (items[1], "SHOP-2")]
    assert renamed(items[1], "SHOP-2") == "t/SHOP-2_a_b.md"
    text = "see 01_a.md, `02_a_b` and 01_ab\nDependencies: 01, 02; 2026-01-02\nat 01 o'clock\n"
    assert with_references(text, "t/03_c.md", moves) == (
        "see SHOP-1_a.md, `SHOP-2_a_b` and 01_ab\nDependencies: SHOP-1, SHOP-2; 2026-01-02\nat 01 o'clock\n"
    )
    assert with_references("Batch 1: 01, 02\n", "t/dependencies.md", moves) == "Batch 1: SHOP-1, SHOP-2\n"
    assert with_references("Batch 1: 01\n", "elsewhere/dependencies.md", moves) == "Batch 1: 01\n"
