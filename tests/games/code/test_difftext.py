"""The text of diffs by itself: names, modes, marks and what cannot be read; where hunks go: `test_patches`."""

from __future__ import annotations

import pytest

from selfplay.games.code.difftext import Line, Malformed, read, unfenced


def test_names_are_read_as_git_writes_them() -> None:
    quoted = '--- "a/tab\\there \\"x\\".py"\n+++ "b/tab\\there \\"x\\".py"\n@@\n-a\n+b\n'
    (section,) = read(quoted)
    assert (section.old, section.new) == ('tab\there "x".py', 'tab\there "x".py')
    (section,) = read('--- "a/gr\\303\\274n.py"\n+++ "b/gr\\303\\274n.py"\n@@\n-a\n+b\n')
    assert section.paths == ("grün.py",)
    (section,) = read("--- ./m.py\t2024-01-01 00:00:00\n+++ ././m.py\t2024-01-02\n@@\n-a\n+b\n")
    assert section.paths == ("m.py",)


def test_a_folder_that_is_called_a_keeps_its_name_where_both_sides_have_it() -> None:
    (section,) = read("--- a/m.py\n+++ a/m.py\n@@\n-a\n+b\n")
    assert section.paths == ("a/m.py",)


@pytest.mark.parametrize(
    ("text", "old", "new", "modes"),
    [
        ("diff --git a/n.py b/n.py\nnew file mode 100644\nindex 0..1\n", None, "n.py", ("100644",)),
        ("diff --git a/n.py b/n.py\ndeleted file mode 100755\n", "n.py", None, ("100755",)),
        ("diff --git a/n.py b/n.py\nold mode 100644\nnew mode 120000\n", "n.py", "n.py", ("100644", "120000")),
        ("diff --git a/o.py b/n.py\nsimilarity index 90%\nrename from o.py\nrename to n.py\n", "o.py", "n.py", ()),
        ("diff --git a/l b/l\nindex 1..2 120000\n--- a/l\n+++ b/l\n@@ -1 +1 @@\n-x\n+y\n", "l", "l", ("120000",)),
        ("--- /dev/null\n+++ b/n.py\n@@ -0,0 +1 @@\n+x\n", None, "n.py", ()),
    ],
)
def test_sections_without_lines_and_what_they_name(
    text: str, old: str | None, new: str | None, modes: tuple[str, ...]
) -> None:
    (section,) = read(text)
    assert (section.old, section.new, section.modes) == (old, new, modes)
    assert section.changes_mode is ("old mode" in text)


def test_blank_lines_are_context_only_inside_a_hunk() -> None:
    (section,) = read("--- m\n+++ m\n@@ -3,9 +3 @@ def f():\n-a\n\n+b\n\n\nThat is all.\n")
    (hunk,) = section.hunks
    assert hunk.start == 3
    assert (hunk.old, hunk.new) == (("a", ""), ("", "b"))


def test_a_line_without_a_newline_is_marked() -> None:
    (section,) = read("--- m\n+++ m\n@@\n-a\n\\ No newline at end of file\n+b\n")
    assert section.hunks[0].lines == (Line(kind="-", text="a", bare=True), Line(kind="+", text="b"))
    assert section.hunks[0].start is None


def test_a_file_that_is_named_twice_is_one_section() -> None:
    (section,) = read("--- m\n+++ m\n@@ -1 +1 @@\n-a\n+b\n--- m\n+++ m\n@@ -9 +9 @@\n-c\n+d\n")
    assert [hunk.start for hunk in section.hunks] == [1, 9]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@@ -1 +1 @@\n-a\n+b\n", "a hunk without a file"),
        ("@@@ -1 -1 +1 @@@\n", "combined diffs are not taken"),
        ("diff --cc m.py\n", "combined diffs are not taken"),
        ("diff --git a/m b/n\ncopy from m\ncopy to n\n", "copies are not taken"),
        ("diff --git a/m b/n\nindex 1..2\n", "a section of the diff without paths"),
        ("diff --git a/m b/m\n--- a/m\nno plus line\n", "a `---` line without `[+][+][+]` below it"),
        ("--- m\n+++ m\n@@\n-a\n+b\nwords\n+c\n", "a changed line that belongs to no hunk: `[+]c`"),
        ('--- "a/m\n+++ b/m\n@@\n-a\n+b\n', "a quoted name does not end"),
        ('--- "a/\\377"\n+++ "b/\\377"\n@@\n-a\n+b\n', "a name in the diff is not UTF-8"),
        ("--- ./\n+++ b/m\n@@\n-a\n+b\n", "a header of the diff names no file"),
        ("--- /dev/null\n+++ /dev/null\n@@\n-a\n+b\n", "a section of the diff names no file"),
        ("--- /dev/null\n+++ n\n@@\n+a\n--- /dev/null\n+++ n\n@@\n+b\n", "n is created or deleted twice"),
        ("--- m\n+++ m\n@@\n-a\n+b\n--- m\n+++ n\n@@\n-a\n+b\n", "a file is changed in two different ways"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        read(text)


def test_text_without_a_diff_has_no_section() -> None:
    assert read("") == read("just words\n\n- a list\n+ another\n") == ()


def test_only_fences_that_hold_a_diff_are_taken_out() -> None:
    diff = "--- m\n+++ m\n@@\n-a\n+b\n"
    assert unfenced(f"See:\n```diff\n{diff}```\nand\n~~~~\n{diff}~~~~\n") == diff + diff
    assert unfenced(f"```python\nx = 1\n```\n{diff}") == f"```python\nx = 1\n```\n{diff}"
    assert unfenced(f"```\n{diff}") == diff, "a fence that does not end"
