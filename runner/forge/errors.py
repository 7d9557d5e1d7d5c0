"""What can go wrong with a tracker or a forge; each error says what was asked, and what to do next."""

from runner.core.errors import RunnerError


class ForgeError(RunnerError):
    """A tracker or a forge did not do what was asked."""

    code = "forge"


class ProgramMissingError(ForgeError):
    """The program that holds the credentials of a service is not installed."""

    code = "forge-program"


class SignInError(ForgeError):
    """The program has no sign-in for the service, or one that the service refuses."""

    code = "forge-sign-in"


class RefusedError(ForgeError):
    """The service answered, and refused; `status` is its answer, `words` its reason."""

    code = "forge-refused"

    def __init__(self, message: str, *, status: int, words: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.words = words


class OutageError(ForgeError):
    """The service did not answer, also after all patience.

    Whether a request that writes was carried out is unknown: look before asking again.
    """

    code = "forge-outage"
    exit_code = 2
