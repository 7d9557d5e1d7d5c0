"""A scripted GitHub: issues, labels, pull requests, comments, reviews, checks and statuses.

It answers as GitHub's REST interface does, as far as the program asks. What GitHub would refuse is refused: a
second open pull request of a branch, a head that nobody pushed, a merge (`merges` counts the attempts).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.forge.scripted_server import Reply, Request, ScriptedService

OWNER, NAME = "acme", "shop"
REPO = f"{OWNER}/{NAME}"
TOKEN = "ghp_" + "scripted0" * 4
_MOMENT = "2026-03-01T10:00:00Z"


@dataclass(kw_only=True)
class Repo:
    """The state of one repository; all of it may be changed by a test at any time (under `lock`)."""

    full_name: str
    default_branch: str = "main"
    fork: bool = False
    parent: str = "upstream/shop"
    permissions: dict[str, bool] = field(default_factory=lambda: {"push": True, "pull": True, "admin": False})
    branches: dict[str, str] = field(default_factory=dict)
    """The branches by name, with their commits; a pull request needs its head here."""
    protected: set[str] = field(default_factory=set)
    issues: dict[int, dict[str, Any]] = field(default_factory=dict)
    blocked_by: dict[int, list[int]] = field(default_factory=dict)
    parts: dict[int, list[int]] = field(default_factory=dict)
    """The sub-issues of issues."""
    relates: bool = True
    """Whether it has sub-issues and dependencies; an older GitHub has not."""
    has_issues: bool = True
    pulls: dict[int, dict[str, Any]] = field(default_factory=dict)
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    review_comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    reviews: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    check_runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def next_number(self) -> int:
        """The number of the next issue or pull request; GitHub counts both together."""
        return max((*self.issues, *self.pulls), default=0) + 1


class GitHubApi(ScriptedService):
    """GitHub as `gh` finds it at a host of its own: REST below `/api/v3/`, GraphQL at `/api/graphql`."""

    prefix = "/api/v3/"

    def __init__(self, *names: str, login: str = "robot") -> None:
        super().__init__()
        self.login = login
        self.token = TOKEN
        self.repos = {name: Repo(full_name=name) for name in names or (REPO,)}
        self.merges = 0
        self._ids = iter(range(1000, 1_000_000))
        self._add_routes()

    @property
    def repo(self) -> Repo:
        """The first repository."""
        return next(iter(self.repos.values()))

    def add_issue(
        self, title: str, body: str | None = "", *, labels: Iterable[str] = (), repo: str = "", **more: Any
    ) -> int:
        """Add an issue; return its number."""
        with self.lock:
            at = self.repos[repo] if repo else self.repo
            number = at.next_number
            at.issues[number] = {
                "id": _issue_id(number),
                "number": number,
                "title": title,
                "body": body,
                "state": "open",
                "labels": [{"name": label} for label in labels],
                "user": {"login": "somebody"},
                "html_url": f"{self.origin}/{at.full_name}/issues/{number}",
                "updated_at": _MOMENT,
                **more,
            }
            return number

    def add_review_comment(self, number: int, body: str, **more: Any) -> dict[str, Any]:
        """Add a comment of a reviewer to a line of a pull request."""
        with self.lock:
            comment = self._comment(
                body, **{"path": "README.md", "line": 1, "user": {"login": "reviewer"}, **more}
            )
            self.repo.review_comments.setdefault(number, []).append(comment)
            return comment

    def add_review(self, number: int, state: str, body: str = "", **more: Any) -> dict[str, Any]:
        """Add a review: APPROVED, CHANGES_REQUESTED or COMMENTED."""
        with self.lock:
            review = self._comment(body, **{"state": state, "user": {"login": "reviewer"}, **more})
            self.repo.reviews.setdefault(number, []).append(review)
            return review

    def _comment(self, body: str, **more: Any) -> dict[str, Any]:
        number = next(self._ids)
        moment = {"created_at": _MOMENT, "updated_at": _MOMENT, "submitted_at": _MOMENT}
        member = {"author_association": "MEMBER", "user": {"login": self.login, "type": "User"}}
        return {"id": number, "body": body, **member, **moment, **more}

    def _add_routes(self) -> None:
        def add(method: str, path: str, handler: Any) -> None:
            def at(request: Request, owner: str, name: str, *parts: str) -> Reply:
                repo = self.repos.get(f"{owner}/{name}")
                if repo is None:
                    return Reply(value={"message": "Not Found"}, status=404)
                return handler(request, repo, *parts)  # type: ignore[no-any-return]

            self.route(method, f"repos/{{owner}}/{{name}}{path}", at)

        self.route("GET", "user", lambda _: Reply(value={"login": self.login}))
        self.route("POST", "api/graphql", self._graphql)
        add("GET", "", lambda _, repo: Reply(value=self._repository(repo)))
        add("GET", "/issues", self._issues)
        add("GET", "/issues/{n}", lambda _, repo, n: _found(self._whole(repo).get(int(n))))
        add("POST", "/issues", self._create_issue)
        add("PATCH", "/issues/{n}", self._edit_issue)
        add("GET", "/issues/{n}/dependencies/blocked_by", self._blocked_by)
        add("POST", "/issues/{n}/dependencies/blocked_by", self._block)
        add("GET", "/issues/{n}/parent", self._parent)
        add("POST", "/issues/{n}/sub_issues", self._add_part)
        add("POST", "/issues/{n}/labels", self._add_labels)
        add(
            "GET", "/issues/{n}/comments", lambda _, repo, n: Reply(value=list(repo.comments.get(int(n), ())))
        )
        add("POST", "/issues/{n}/comments", self._add_comment)
        add("PATCH", "/issues/comments/{id}", self._edit_comment)
        add("GET", "/branches/{branch}", self._branch)
        add("GET", "/pulls", self._pulls)
        add("POST", "/pulls", self._create_pull)
        add("GET", "/pulls/{n}", lambda _, repo, n: _found(_at_its_branch(repo, repo.pulls.get(int(n)))))
        add("PATCH", "/pulls/{n}", self._edit_pull)
        add("PUT", "/pulls/{n}/merge", self._merge)
        add(
            "GET", "/pulls/{n}/comments", lambda _, r, n: Reply(value=list(r.review_comments.get(int(n), ())))
        )
        add("POST", "/pulls/{n}/comments/{id}/replies", self._reply)
        add("GET", "/pulls/{n}/reviews", lambda _, repo, n: Reply(value=list(repo.reviews.get(int(n), ()))))
        add("GET", "/commits/{sha}/check-runs", self._check_runs)
        add("POST", "/check-runs", self._add_check_run)
        add("POST", "/statuses/{sha}", self._add_status)
        add("GET", "/commits/{sha}/statuses", lambda _, r, sha: Reply(value=r.statuses.get(sha, [])[::-1]))
        add("GET", "/commits/{sha}/status", self._combined)

    def _repository(self, repo: Repo) -> dict[str, Any]:
        owner, _, name = repo.full_name.partition("/")
        return {
            "full_name": repo.full_name,
            "name": name,
            "owner": {"login": owner},
            "default_branch": repo.default_branch,
            "fork": repo.fork,
            **({"parent": {"full_name": repo.parent}} if repo.fork else {}),
            "permissions": repo.permissions,
            "has_issues": repo.has_issues,
            "html_url": f"{self.origin}/{repo.full_name}",
        }

    def _whole(self, repo: Repo) -> dict[int, dict[str, Any]]:
        """Return the issues with what GitHub lists among them: the pull requests."""
        pulls = {number: {**pull, "pull_request": {}} for number, pull in repo.pulls.items()}
        blocked = {
            number: {
                **issue,
                "issue_dependencies_summary": {"blocked_by": len(repo.blocked_by.get(number, ()))},
            }
            for number, issue in repo.issues.items()
        }
        return {**blocked, **pulls}

    def _issues(self, request: Request, repo: Repo) -> Reply:
        wanted = set(filter(None, request.query.get("labels", "").split(",")))
        state = request.query.get("state", "open")
        found = [
            issue
            for issue in self._whole(repo).values()
            if state in {issue["state"], "all"}
            and wanted <= {label["name"] for label in issue.get("labels", ())}
        ]
        newest_first = request.query.get("direction", "desc") == "desc"
        return Reply(value=sorted(found, key=lambda issue: issue["number"], reverse=newest_first))

    def _create_issue(self, request: Request, repo: Repo) -> Reply:
        body = request.body
        user = {"user": {"login": self.login, "type": "User"}, "author_association": "MEMBER"}
        number = self.add_issue(
            body["title"], body["body"], labels=body.get("labels", ()), repo=repo.full_name, **user
        )
        return Reply(value=repo.issues[number], status=201)

    def _edit_issue(self, request: Request, repo: Repo, number: str) -> Reply:
        issue = repo.issues.get(int(number)) or repo.pulls.get(int(number))
        if issue is not None:
            issue.update(request.body)
        return _found(issue)

    def _block(self, request: Request, repo: Repo, number: str) -> Reply:
        blockers = repo.blocked_by.setdefault(int(number), [])
        other = _issue_number(request.body["issue_id"])
        if not repo.relates or other in blockers:
            return _invalid({"message": "it is there"}) if repo.relates else _found(None)
        blockers.append(other)
        return Reply(value=repo.issues[other], status=201)

    def _parent(self, _: Request, repo: Repo, number: str) -> Reply:
        parents = (repo.issues[whole] for whole, parts in repo.parts.items() if int(number) in parts)
        return _found(next(parents, None))

    def _add_part(self, request: Request, repo: Repo, number: str) -> Reply:
        part = _issue_number(request.body["sub_issue_id"])
        if not repo.relates or any(part in parts for parts in repo.parts.values()):
            return _invalid({"message": "only one parent"}) if repo.relates else _found(None)
        repo.parts.setdefault(int(number), []).append(part)
        return Reply(value=repo.issues[int(number)], status=201)

    def _blocked_by(self, _: Request, repo: Repo, number: str) -> Reply:
        if not repo.relates:
            return _found(None)
        return Reply(value=[repo.issues[each] for each in repo.blocked_by.get(int(number), ())])

    def _add_labels(self, request: Request, repo: Repo, number: str) -> Reply:
        issue = repo.issues.get(int(number)) or repo.pulls.get(int(number))
        if issue is not None:
            known = {label["name"] for label in issue["labels"]}
            issue["labels"] += [{"name": name} for name in request.body["labels"] if name not in known]
        return _found(issue and issue["labels"])

    def _add_comment(self, request: Request, repo: Repo, number: str) -> Reply:
        comment = self._comment(request.body["body"])
        repo.comments.setdefault(int(number), []).append(comment)
        return Reply(value=comment, status=201)

    def _edit_comment(self, request: Request, repo: Repo, number: str) -> Reply:
        every = (each for comments in repo.comments.values() for each in comments)
        comment = next((each for each in every if each["id"] == int(number)), None)
        if comment is not None:
            comment["body"] = request.body["body"]
        return _found(comment)

    def _branch(self, _: Request, repo: Repo, branch: str) -> Reply:
        name = branch.replace("%2F", "/")
        if name not in repo.branches:
            return Reply(value={"message": "Branch not found"}, status=404)
        commit = {"sha": repo.branches[name]}
        return Reply(value={"name": name, "commit": commit, "protected": name in repo.protected})

    def _pulls(self, request: Request, repo: Repo) -> Reply:
        query = request.query
        state, head, base = query.get("state", "open"), query.get("head", ""), query.get("base", "")
        found = [
            pull
            for pull in repo.pulls.values()
            if state in {pull["state"], "all"}
            and head in {"", pull["head"]["label"]}
            and base in {"", pull["base"]["ref"]}
        ]
        return Reply(value=[_at_its_branch(repo, pull) for pull in found[::-1]])

    def _create_pull(self, request: Request, repo: Repo) -> Reply:
        body, owner = request.body, repo.full_name.partition("/")[0]
        who, _, branch = body["head"].rpartition(":")
        label = f"{who or owner}:{branch}"
        if branch not in repo.branches or body["base"] not in repo.branches:
            field_ = "head" if branch not in repo.branches else "base"
            return _invalid({"resource": "PullRequest", "field": field_, "code": "invalid"})
        if any(pull["head"]["label"] == label and pull["state"] == "open" for pull in repo.pulls.values()):
            return _invalid({"message": f"A pull request already exists for {label}."})
        number = repo.next_number
        repo.pulls[number] = {
            "number": number,
            "node_id": f"PR_{number}",
            "title": body["title"],
            "body": body.get("body", ""),
            "draft": bool(body.get("draft", False)),
            "state": "open",
            "merged": False,
            "labels": [],
            "user": {"login": self.login},
            "html_url": f"{self.origin}/{repo.full_name}/pull/{number}",
            "head": {
                "ref": branch,
                "label": label,
                "sha": repo.branches[branch],
                "repo": {"full_name": repo.full_name},
            },
            "base": {"ref": body["base"], "sha": repo.branches[body["base"]]},
            "updated_at": _MOMENT,
        }
        return Reply(value=repo.pulls[number], status=201)

    def _edit_pull(self, request: Request, repo: Repo, number: str) -> Reply:
        pull = repo.pulls.get(int(number))
        if pull is not None:
            changed = dict(request.body)
            if "base" in changed:
                changed["base"] = {"ref": changed["base"], "sha": repo.branches.get(changed["base"], "")}
            pull.update(changed)
        return _found(pull)

    def _merge(self, *_: object) -> Reply:
        self.merges += 1
        return Reply(value={"message": "this must never be asked"}, status=405)

    def _reply(self, request: Request, repo: Repo, number: str, to: str) -> Reply:
        comment = self._comment(request.body["body"], in_reply_to_id=int(to))
        repo.review_comments.setdefault(int(number), []).append(comment)
        return Reply(value=comment, status=201)

    def _check_runs(self, _: Request, repo: Repo, sha: str) -> Reply:
        found = repo.check_runs.get(sha, [])
        return Reply(value={"total_count": len(found), "check_runs": found})

    def _add_check_run(self, request: Request, repo: Repo) -> Reply:
        run = {"id": next(self._ids), **request.body}
        repo.check_runs.setdefault(run["head_sha"], []).append(run)
        return Reply(value=run, status=201)

    def _add_status(self, request: Request, repo: Repo, sha: str) -> Reply:
        status = {"id": next(self._ids), "context": "default", **request.body}
        repo.statuses.setdefault(sha, []).append(status)
        return Reply(value=status, status=201)

    def _combined(self, _: Request, repo: Repo, sha: str) -> Reply:
        newest = {status["context"]: status for status in repo.statuses.get(sha, ())}
        states = {status["state"] for status in newest.values()}
        order = ("failure", "error", "pending")
        state = next((each for each in order if each in states), "success" if states else "pending")
        return Reply(value={"state": state, "statuses": list(newest.values()), "sha": sha})

    def _graphql(self, request: Request) -> Reply:
        """Answer the few mutations that REST lacks: a draft that becomes ready, and the other way round."""
        query, variables = request.body["query"], request.body.get("variables") or {}
        if "viewer" in query:
            return Reply(value={"data": {"viewer": {"login": self.login}}})
        pulls = {pull["node_id"]: pull for repo in self.repos.values() for pull in repo.pulls.values()}
        pull = next((pulls[value] for value in variables.values() if value in pulls), None)
        if pull is None:
            return Reply(value={"data": None, "errors": [{"message": "Could not resolve to a node"}]})
        if "markPullRequestReadyForReview" in query:
            pull["draft"] = False
        elif "convertPullRequestToDraft" in query:
            pull["draft"] = True
        elif "enablePullRequestAutoMerge" in query or "enqueuePullRequest" in query:
            pull["queued"] = True
        else:
            return Reply(value={"data": None, "errors": [{"message": "unknown query"}]})
        return Reply(value={"data": {"pullRequest": {"number": pull["number"]}}})


def _at_its_branch(repo: Repo, pull: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a pull request with the commit that its branch has now; one that is closed keeps its own."""
    if pull is not None and pull["state"] == "open":
        pull["head"]["sha"] = repo.branches.get(pull["head"]["ref"]) or pull["head"]["sha"]
    return pull


def _issue_id(number: int) -> int:
    """Return what the service calls an issue where its number is not meant."""
    return 70_000 + number


def _issue_number(issue_id: int) -> int:
    return issue_id - _issue_id(0)


def _found(value: Any) -> Reply:
    return Reply(value={"message": "Not Found"}, status=404) if value is None else Reply(value=value)


def _invalid(error: dict[str, str]) -> Reply:
    return Reply(value={"message": "Validation Failed", "errors": [error]}, status=422)
