"""Models from the Hugging Face hub or a mirror of it (`HF_ENDPOINT`), through its own client and cache (`HF_HOME`).

Called by `model_folder`. A token comes from the client's own `HF_TOKEN`.
"""

from pathlib import Path

from kvarn_engine.cache_folder import as_open_as
from kvarn_engine.model_errors import ModelNotFound


def fetch_from_hub(reference: str, revision: str, patterns: tuple[str, ...]) -> Path:
    """The snapshot folder. An empty revision is the hub's default branch. Raises ModelNotFound."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        with as_open_as(Path(HF_HUB_CACHE)):
            return Path(snapshot_download(reference, revision=revision or None, allow_patterns=list(patterns)))
    except RevisionNotFoundError as error:
        raise ModelNotFound(f"hub model {reference!r} has no revision {revision!r}") from error
    except GatedRepoError as error:
        raise ModelNotFound(f"hub model {reference!r} is gated: accept its terms there and set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        raise ModelNotFound(f"the hub shows no model {reference!r}: if it is private, set HF_TOKEN") from error
    except HFValidationError as error:
        raise ModelNotFound(f"model {reference!r} is neither a folder here nor the name of a hub model") from error
    except PermissionError as error:
        raise ModelNotFound(
            f"{error.filename or HF_HUB_CACHE} cannot be written ({error.strerror}): set HF_HOME to a folder that can "
            "be, by its group too where several users share it"
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelNotFound(
            f"model {reference!r} is no folder here, and the hub cannot be reached now ({type(error).__name__})"
        ) from error
