"""JSON of the API server -> what the operator works with. The only way in; everything behind it is checked."""

from kvarn_operator.resources.pod_parsing import parse_pod
from kvarn_operator.resources.service_parsing import parse_model_service
from kvarn_operator.resources.worker_pool_parsing import parse_worker_pool

__all__ = ["parse_model_service", "parse_pod", "parse_worker_pool"]
