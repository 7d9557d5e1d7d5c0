"""Reading what is private: each key store by several ways, variables, and sockets that hand out keys."""

from tests.attacks.attack import SECRETS, Attack, stolen

MARK = "HUNTED"
_TEXTS = {
    ".docker/config.json": '{"auths": {"registry": {"auth": "MARK"}}}',
    ".netrc": "machine a login b password MARK",
    ".git-credentials": "https://me:MARK@example.org",
    ".npmrc": "//registry/:_authToken=MARK",
    ".pypirc": "password = MARK",
    ".config/pip/pip.conf": "index-url = https://me:MARK@example.org/simple",
    ".m2/settings.xml": "<password>MARK</password>",
}
_STORES = (
    ".ssh/id_ed25519",
    ".gnupg/private-keys-v1.d/key",
    ".aws/credentials",
    ".azure/token.json",
    ".config/gcloud/access_tokens.db",
    ".kube/config",
    ".vault-token",
    ".config/gh/hosts.yml",
    ".config/glab-cli/config.yml",
    ".cargo/credentials.toml",
    ".pgpass",
    ".mozilla/firefox/logins.json",
    ".config/chromium/Default/Cookies",
    ".password-store/mail.gpg",
    ".local/share/keyrings/login.keyring",
    ".bash_history",
    ".local/share/autopilot-multi/trust/one.json",
    ".claude/.credentials.json",
    ".codex/auth.json",
    "Documents/diary",
    *_TEXTS,
)
_WAYS = {
    "cat": 'cat "$P"',
    "copy": 'mkdir -p /tmp/$$ && cp -r "$HOME/$TOP" /tmp/$$ && cat /tmp/$$/"$(basename "$TOP")${REST:+/}$REST";'
    " R=$?; rm -rf /tmp/$$; exit $R",
    "root": 'cat /proc/self/root"$P"',
    "unmount": 'unshare -rm sh -c "umount -l $HOME/$TOP; umount -l $P; cat $P"',
}
VARIABLES = {
    "ANTHROPIC_API_KEY": f"{MARK}-anthropic;",
    "STRIPE_SECRET_KEY": f"{MARK}-stripe;",
    "DEPLOY": f"{MARK}-form; ghp_{'a' * 36}",
}


def mark_of(store: str) -> str:
    """Return the text that is only in this store."""
    return f"{MARK}-{store.replace('/', '-')};"


def stores() -> dict[str, str]:
    """Return what lies in a home: each path with its text."""
    return {store: _TEXTS.get(store, "MARK").replace("MARK", mark_of(store)) for store in _STORES}


_NO_VARIABLE = "the variable is not in the session's environment"


def _top(store: str) -> str:
    """Return the file or folder in the home that is hidden as a whole, or lies in one that is not."""
    first, _, rest = store.partition("/")
    whole = {".ssh", ".gnupg", ".aws", ".azure", ".kube", ".mozilla", ".password-store", "Documents"}
    return first if first in whole or not rest else store


def attacks() -> list[Attack]:
    """Return the attacks of this family."""
    found = []
    for store in _STORES:
        top = _top(store)
        variables = f'P="$HOME/{store}"; TOP="{top}"; REST="{store.removeprefix(top).lstrip("/")}"; '
        found += [
            Attack(
                name=f"read-{way}-{store.strip('.').replace('/', '-')}",
                family="reads",
                script=variables + script,
                seal=SECRETS,
                proof=stolen(mark_of(store)),
                target=top,
            )
            for way, script in _WAYS.items()
        ]
    for name, mark in VARIABLES.items():
        ways = {"shell": f'echo "${name}"', "own-environ": "cat /proc/self/environ", "env": "env"}
        found += [
            Attack(
                name=f"variable-{way}-{name.lower()}",
                family="reads",
                script=script,
                seal=SECRETS,
                proof=stolen(mark),
                silent=_NO_VARIABLE,
            )
            for way, script in ways.items()
        ]
    connect = '$PYTHON -c "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);'
    found += [
        Attack(
            name=f"ssh-agent-{how}",
            family="reads",
            script=f'{connect} print(s.recv(99))" "{place}"',
            seal=SECRETS,
            proof=stolen(f"{MARK}-agent;"),
            target="agent.sock",
            silent=_NO_VARIABLE if how == "variable" else "",
        )
        for how, place in {"variable": "$SSH_AUTH_SOCK", "path": "$FOLDER/agent.sock"}.items()
    ]
    return found
