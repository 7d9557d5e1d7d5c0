"""What is read without the YAML library is what the library reads."""

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from runner.core.text.plain_yaml import plain_mapping
from runner.records.bounded_yaml import BAD_SCALARS, load_yaml

_WORDS = (
    "a title y on Yes null true 1 0 012 1.5 0x1 ~ src/** << = --- ... é - : # , ? | > & * ! % @ ` [ ] { } '"
)
_PIECES = st.sampled_from(
    [
        *_WORDS.split(),
        '"',
        "\\",
        "- ",
        ": ",
        " #",
        ", ",
        "\n- ",
        "\n  - ",
        "\n  ",
        "\n",
        "\t",
        " ",
        "\x85",
        "\ufeff",
    ]
)
_LINES = st.lists(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["title: ", "owns: ", "max: ", "owns:", "  - ", "- ", "    ", "# ", ""]),
        st.sampled_from(
            ['"echo 1 > f1"', "Retry payments", "3", "true", "NO", "[a, b]", "[src/**,docs]", ""]
        ),
        st.sampled_from(["", "", "", " ", " #1", ": x", '"', ","]),
    )
)


@given(st.lists(_PIECES).map("".join) | _LINES.map("\n".join))
@example("on: 1")
@example("owns:\n- a\n  - b")
@example("title: a\n  - b")
@example("title: it's, I think | fine")
def test_what_is_read_is_what_yaml_reads(text: str) -> None:
    """No text is read differently; what is not plain is left to YAML."""
    read = plain_mapping(text)
    if read is not None:
        assert read == load_yaml(text)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('command: "echo 1 > f1"\n', {"command": "echo 1 > f1"}),
        ("title: Retry payments\nmax-retries: 3\n", {"title": "Retry payments", "max-retries": 3}),
        ("# a remark\nowns: [src/**, docs]\n", {"owns": ["src/**", "docs"]}),
        ("owns:\n  - src/**\n  - docs\nquick: true", {"owns": ["src/**", "docs"], "quick": True}),
    ],
)
def test_usual_front_matter_is_plain(text: str, expected: object) -> None:
    """The usual front matter needs no library."""
    assert plain_mapping(text) == expected


@pytest.mark.parametrize(
    "text", ["", "title:", "a: 1\na: 2", "a: b: c", "a: yes", "owns:\n  - a\n - b", "a: &x 1"]
)
def test_what_is_not_plain_is_left_to_yaml(text: str) -> None:
    """A key without a value, one given twice, and all that only YAML can read."""
    try:
        load_yaml(text)
    except (yaml.YAMLError, *BAD_SCALARS):
        pass
    assert plain_mapping(text) is None
