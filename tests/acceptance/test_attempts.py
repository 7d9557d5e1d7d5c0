"""How often and how long a story is tried: the limits of attempts, stories and verify commands."""

from pathlib import Path

from tests.acceptance.program import commit_stories, processes_with, run, write_story


def test_a_verify_command_that_takes_too_long_is_ended_with_its_processes(repo: Path, tmp_path: Path) -> None:
    """The attempt fails, the next one reads why, and nothing of the command is left; story and flag count."""
    slow = f"test -f quick || {{ echo begun; sh -c 'sleep 900; : {tmp_path}' & sleep 900; }}"
    work = "echo x >> work; ! grep -q 'exceeded its limit of .* min' $AUTOPILOT_PROMPT_FILE || touch quick"
    write_story(repo, "own", command=work, verify=[slow], verify_minutes=0.005)
    write_story(repo, "general", command=work, verify=[slow])
    commit_stories(repo)
    ran = run(repo, "run", "--json", "--verify-minutes", "0.01", "--grace-seconds", "1")
    assert ran.code == 0, ran.err
    for name, minutes in (("own", "0.005"), ("general", "0.01")):
        story = ran.story(name)
        assert (story["attempt"], story["sessions"]) == (2, 4)
        said = f"attempt 1 of 4 failed: verify command `{slow}` exceeded its limit of {minutes} min"
        assert said in ran.err
        log = run(repo, "logs", name, "--session", "2").out
        assert "begun\n" in log
        assert f"ended: exceeded its limit of {minutes} min" in log
    assert not processes_with(str(tmp_path))
