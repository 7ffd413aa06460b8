"""What a resource can have wrong. Raised by the parsers, turned into `Accepted=False` by the reconcile."""


class InvalidResource(ValueError):
    """`field` is the path a user sees in YAML, such as `spec.prefill.scaling.max`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
