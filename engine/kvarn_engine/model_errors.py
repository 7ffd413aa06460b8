"""Why a model cannot be had. Raised by everything that turns a reference into a folder."""


class ModelNotFound(Exception):
    """The reference names no folder here and no model that can be fetched. The message is for the person who set it."""
