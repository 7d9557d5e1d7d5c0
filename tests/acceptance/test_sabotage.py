"""A story that breaks the code never ends as verified, by the real program; the real tools are in `chaos`."""

from dataclasses import replace

import pytest

from isolation.guard.guard import READ_ONLY, attempt
from isolation.model import Means
from tests.acceptance.people import GROUNDS, NO_MOUNTS, USERS, Ground
from tests.acceptance.program import Ran
from tests.acceptance.sabotage import BROKEN, FINE, SAMPLE, Project, Scene, prepared
from tests.isolation.guard.guard_scenes import can_mount


def statuses(ran: Ran) -> dict[str, str]:
    """Return the status of each story; an error instead of a report is a failure of the test."""
    assert "data" in ran.document, (ran.out, ran.err)
    return {story["id"]: story["status"] for story in ran.data["stories"]}


def seen_through(scene: Scene) -> None:
    """Sessions see their own tree: what is broken fails, what is fine is done."""
    ran = scene.run()
    assert statuses(ran) == {FINE: "done", BROKEN: "failed"}, (ran.out, ran.err)


def refused(scene: Scene, *args: str, landlocks: int = 0) -> None:
    """Without the view the run names the way out, and nothing was started."""
    ran = scene.run("run", *args, landlocks=landlocks)
    assert (ran.code, ran.document["error"]["code"]) == (1, "ways-out"), (ran.out, ran.err)
    assert str(scene.root) in ran.document["error"]["message"]
    assert scene.person.git(scene.root, "branch", "--list", "autopilot/*") == ""


def lied_to(scene: Scene) -> None:
    """On demand the run takes place and names the way out; what it then says is false, which is the point."""
    planned = scene.run("plan", "--ways-out", "warn")
    assert scene.project.way_out in {way["kind"] for way in planned.data["ways_out"]}, planned.out
    ran = scene.run("run", "--ways-out", "warn")
    assert statuses(ran) == {FINE: "done", BROKEN: "done"}, (ran.out, ran.err)
    assert all("not for certain on its own files" in story["reason"] for story in ran.data["stories"])
    noted = "\n".join(note["message"] for note in ran.data["notes"])
    assert all(way["remedy"] in noted for way in planned.data["ways_out"]), noted


@pytest.mark.skipif(not can_mount(), reason="this machine cannot mount")
@pytest.mark.parametrize(
    ("project", "user"),
    [(project, list(USERS)[number % len(USERS)]) for number, project in enumerate(SAMPLE.values())],
    ids=list(SAMPLE),
)
def test_a_story_that_breaks_the_code_fails(project: Project, user: str) -> None:
    """What a verify command loads by the checkout's path is the story's own, as root and as others."""
    with prepared(project, user) as scene:
        seen_through(scene)


@pytest.mark.parametrize(
    ("ground", "user"),
    [(ground, list(USERS)[number % len(USERS)]) for number, ground in enumerate(GROUNDS.values())],
    ids=list(GROUNDS),
)
def test_a_story_that_breaks_the_code_fails_in_one_shared_tree(ground: Ground, user: str) -> None:
    """At every level of enforcement; that another story's package is imported breaks no claim."""
    ground.require()
    with prepared(SAMPLE["setuptools"], user) as scene:
        ran = scene.run_in_one_tree(ground)
        assert statuses(ran) == {FINE: "done", BROKEN: "failed"}, (ran.out, ran.err)
        assert ran.data["enforcement"] == ground.level


@pytest.mark.skipif(bool(attempt(READ_ONLY, Means.LANDLOCK)), reason="this machine has no Landlock")
def test_landlock_alone_refuses_the_way_out_before_the_start() -> None:
    """It cannot move a tree: doctor, plan, run and report say that, why, and what to do about it."""
    why = "this machine cannot mount for a session"
    with prepared(SAMPLE["a finder of setuptools"], list(USERS)[-1]) as scene:
        refused(scene, landlocks=NO_MOUNTS)
        planned = scene.run("plan", landlocks=NO_MOUNTS).document["error"]
        assert (planned["code"], why in planned["message"]) == ("ways-out", True)
        assert "let the hook `after_create` make one for each worktree" in planned["message"]
        assert "--ways-out warn" in planned["hint"]
        checks = {each["name"]: each for each in scene.run("doctor", landlocks=NO_MOUNTS).data["checks"]}
        assert why in checks["guard"]["detail"]
        assert "looks for ways out before it starts anything" in checks["guard"]["hint"]
        assert checks["way out"]["level"] == "fail", "the verify command is in the stories"
        poor = replace(scene.person, landlocks=NO_MOUNTS)
        ran = poor.run(scene.root, "run", "--ways-out", "warn", "--only", FINE)
        said = poor.run(scene.root, "plan", "--again", "--ways-out", "warn").err
        html, page = (poor.run(scene.root, "report", "--format", each).out for each in ("html", "markdown"))
        assert ran.code == 0, ran.err
        for where, text in {"run": ran.err, "its end": ran.out, "plan": said, "html": html}.items():
            assert why in text, where
            assert "__editable__.demo-0.1.pth" in text, where
        assert why in page
        assert "not for certain on its own files" in page.replace("\\", "")


def test_without_the_guard_the_way_out_is_named_before_the_start() -> None:
    """Refused by default; on demand plan, doctor, run and report name it."""
    with prepared(SAMPLE["a finder of setuptools"], "me") as scene:
        refused(scene, "--no-guard")
        (scene.root / "autopilot-multi.toml").write_text(
            f'guard = false\nverify = "{scene.project.verify}"\nmax-attempts = 1\n'
        )
        checks = [check for check in scene.run("doctor").data["checks"] if check["name"] == "way out"]
        assert [check["level"] for check in checks] == ["fail"]
        assert "__editable__.demo-0.1.pth" in checks[0]["detail"]
        lied_to(scene)
