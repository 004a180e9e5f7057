"""What can go wrong, as types. An exception's docstring is its default message."""


class StackmemError(Exception):
    """Something went wrong in stackmem."""

    status = 500  # the HTTP status a robot sees

    def __init__(self, message: str = ""):
        super().__init__(message or (type(self).__doc__ or "").strip())


class TransientError(StackmemError):
    """A service did not answer; the same call may work later."""

    status = 503

    def __init__(self, message: str = "", retry_after_s: float | None = None):
        super().__init__(message)
        self.retry_after_s = retry_after_s


class PermanentError(StackmemError):
    """A service refused the call; repeating it will not help."""

    status = 502


class ContentRefused(PermanentError):
    """The chat model's service refuses to read these words."""


class ToolsRefused(PermanentError):
    """The chat model's server takes no tools: set STACKMEM_TOOL_MODE=json."""


class OtherVectors(PermanentError):
    """The index holds the vectors of another embedder."""


class BadAnswer(PermanentError):
    """The model's answer could not be used."""


class InvalidInput(StackmemError):
    """The input is not valid."""

    status = 400


class BadParameter(InvalidInput):
    """A parameter of the request is not valid."""

    def __init__(self, parameter: str, message: str):
        super().__init__(message)
        self.parameter = parameter


class NotFound(StackmemError):
    """There is nothing under this id."""

    status = 404


class Conflict(StackmemError):
    """This is already being done."""

    status = 409


class SettingsError(StackmemError):
    """A setting is wrong."""


class Busy(StackmemError):
    """Another stackmem is using this folder."""

    status = 503
