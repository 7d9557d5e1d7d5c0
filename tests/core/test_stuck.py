"""Stuck detection: what counts as getting nowhere, what does not, and what is done about it."""

from hypothesis import given
from hypothesis import strategies as st

from runner.core.limits.stuck import (
    ACTIVE_WITHIN_SECONDS,
    REWRITES,
    FileWrite,
    ProgressWatch,
    Recovery,
    content_digest,
    question_digest,
    recovery,
)

START = 1000.0
LIMIT = 30 * 60.0
BLANKS = st.text(alphabet=" \t\r\n", max_size=4)


def reason(watch: ProgressWatch) -> str:
    """Return the verdict's reason; empty when the session is not stuck."""
    verdict = watch.verdict()
    return "" if verdict is None else verdict.reason


def written(*contents: str, path: str = "_docs/plan.md") -> ProgressWatch:
    """Watch an artifact being written, once a second."""
    watch = ProgressWatch(new_at=START, limit=LIMIT)
    for second, content in enumerate(contents):
        watch = watch.seen_artifact(path, content_digest(content.encode()), START + second)
    return watch


def test_the_third_rewrite_without_a_change_is_stuck() -> None:
    """Written once and over itself three times, always the same: stuck, and the artifact is named."""
    assert reason(written("a", "a", "a")) == ""
    assert reason(written("a", "a", "a", "a")) == (
        "_docs/plan.md was rewritten 3 times without a meaningful change"
    )


def test_white_space_is_no_meaningful_change() -> None:
    """Another indentation or line ending is the same artifact; another word is not."""
    assert "rewritten 3 times" in reason(written("a b\n", "a  b", "a\tb\n\n", "\na\r\nb"))
    assert reason(written("a b", "ab", "a b c", "a b d")) == ""


def test_going_back_and_forth_is_no_change() -> None:
    """An artifact that only returns to what it was before does not move."""
    assert "rewritten" in reason(written("a", "b", "a", "b", "a"))


def test_new_content_restarts_the_count() -> None:
    """A session that makes progress is no longer stuck."""
    assert reason(written("a", "a", "a", "a", "b")) == ""
    assert reason(written("a", "a", "a", "b", "b", "b")) == ""


def test_each_artifact_is_counted_by_itself() -> None:
    """Three artifacts written twice each are six writes, and work."""
    watch = ProgressWatch(new_at=START, limit=LIMIT)
    for path in ("a.md", "b.md", "c.md") * 2:
        watch = watch.seen_artifact(path, content_digest(b"same"), START)
    assert reason(watch) == ""


def test_the_path_in_the_reason_is_harmless() -> None:
    """A file's name cannot bring a terminal to do anything."""
    watch = written("a", "a", "a", "a", path="\x1b[31mx\ny")
    assert "\x1b" not in reason(watch)
    assert "\n" not in reason(watch)


def test_a_question_is_known_however_it_is_written() -> None:
    """Spaces, capitals and the mark at its end make no other question; another word does."""
    first = question_digest("Which  database?")
    assert first == question_digest("which database ?")
    assert first != question_digest("Which queue?")


def test_an_active_session_that_leaves_nothing_new_is_stuck() -> None:
    """Half an hour of activity without a new artifact; a minute less is none of our business."""
    long = START + LIMIT
    watch = ProgressWatch(new_at=START, limit=LIMIT)
    assert reason(watch.tick(long - 60, long - 60)) == ""
    assert reason(watch.tick(long, long - 5)) == ("nothing new for 30 min 00 s, though the session is active")


def test_a_silent_session_is_left_to_the_stall_limit() -> None:
    """Without a sign of life it is not working in circles, it is not working."""
    long = START + LIMIT
    watch = ProgressWatch(new_at=START, limit=LIMIT)
    assert reason(watch.tick(long, long - ACTIVE_WITHIN_SECONDS))
    assert reason(watch.tick(long, long - ACTIVE_WITHIN_SECONDS - 1)) == ""


def test_only_what_is_new_puts_the_clock_back() -> None:
    """A new artifact and a new content do; the same content once more does not."""
    late = START + LIMIT - 1
    end = START + LIMIT
    first = written("a")
    assert reason(first.seen_artifact("_docs/plan.md", content_digest(b"a"), late).tick(end, end))
    assert reason(first.seen_artifact("_docs/plan.md", content_digest(b"b"), late).tick(end, end)) == ""
    assert reason(first.seen_artifact("other.md", content_digest(b"a"), late).tick(end, end)) == ""


def test_without_a_limit_only_rewrites_count() -> None:
    """A step that verify commands judge may take as long as it needs."""
    watch = ProgressWatch(new_at=START)
    assert reason(watch.tick(START + 100 * LIMIT, START + 100 * LIMIT)) == ""
    for second in range(4):
        watch = watch.seen_artifact("plan.md", content_digest(b"a"), START + second)
    assert "plan.md was rewritten 3 times" in reason(watch)


def test_any_file_with_new_content_is_progress() -> None:
    """The clock starts at the time of the write; a file that gets the same content again is not new."""
    end = START + LIMIT
    watch = ProgressWatch(new_at=START, limit=LIMIT).tick(end, end)
    one = FileWrite(digest="1", at=end - 60)
    worked = watch.seen_files({"src/a.py": one})
    assert (reason(worked), worked.new_at) == ("", end - 60)
    later = end + LIMIT
    same = worked.seen_files({"src/a.py": FileWrite(digest="1", at=later - 1)}).tick(later, later)
    assert "nothing new for 31 min" in reason(same)
    assert reason(same.seen_files({"src/a.py": FileWrite(digest="2", at=later - 1)})) == ""
    assert reason(same.seen_files({"src/b.py": FileWrite(digest="1", at=later - 1)})) == ""


def test_what_is_new_forgives_what_was_rewritten() -> None:
    """A session that writes the same report after each of its changes works."""
    watch = written("a", "a", "a", "a")
    assert "rewritten" in reason(watch)
    assert reason(watch.seen_files({"src/a.py": FileWrite(digest="1", at=START + 5)})) == ""
    assert reason(watch.seen_artifact("_docs/other.md", content_digest(b"new"), START + 5)) == ""
    assert "rewritten" in reason(watch.seen_files({}))


def test_the_files_that_are_remembered_are_bounded() -> None:
    """The oldest are forgotten, and would count as new once more."""
    watch = ProgressWatch(new_at=START)
    for batch in range(3):
        writes = {f"{batch}-{number}": FileWrite(digest="x", at=START) for number in range(6_000)}
        watch = watch.seen_files(writes)
    assert len(watch.files) == 10_000
    assert "2-5999" in watch.files
    assert "0-0" not in watch.files


def test_recovery_re_reads_then_retries_then_asks() -> None:
    """The order of the protocol; two recoveries that failed are enough."""
    assert [recovery(failures) for failures in range(4)] == [
        Recovery.RE_READ,
        Recovery.RETRY,
        Recovery.ASK,
        Recovery.ASK,
    ]
    assert recovery(0).value == "re-read"


@given(words=st.lists(st.sampled_from(["plan", "x", "ü", "1"]), min_size=1), data=st.data())
def test_a_digest_sees_words_and_nothing_between_them(words: list[str], data: st.DataObject) -> None:
    """Any two spacings of the same words are one content, and one word more is another."""

    def spaced() -> bytes:
        gaps = data.draw(st.lists(BLANKS, min_size=len(words), max_size=len(words)))
        return "".join(f"{gap} {word}" for gap, word in zip(gaps, words, strict=True)).encode()

    one = content_digest(spaced())
    assert one == content_digest(spaced())
    assert one != content_digest(spaced() + b" more")


@given(contents=st.lists(st.sampled_from("abc"), min_size=1, max_size=20))
def test_stuck_means_that_the_last_three_writes_brought_nothing_new(contents: list[str]) -> None:
    """Compared with a count by hand, over any order of writes."""
    quiet = 0
    for number, content in enumerate(contents):
        quiet = quiet + 1 if content in contents[:number] else 0
    assert (written(*contents).verdict() is not None) == (quiet >= REWRITES)


@given(seconds=st.lists(st.floats(min_value=0, max_value=600), max_size=30))
def test_a_session_that_keeps_writing_new_things_is_never_stuck(seconds: list[float]) -> None:
    """Whatever the pace below the limit, progress is believed; and an old watch never changes."""
    watch, at = ProgressWatch(new_at=START, limit=LIMIT), START
    before = watch
    for number, gap in enumerate(seconds):
        at += gap
        watch = watch.tick(at, at).seen_artifact(f"{number % 3}.md", content_digest(b"%d" % number), at)
        assert watch.verdict() is None
    assert before == ProgressWatch(new_at=START, limit=LIMIT)
