"""HTTP sessions for kopf, with the official client's credentials. Owned by the watch, which closes them.

Every request carries the token of the moment, so that a token which is renewed now and then never leads to a refusal:
kopf survives one badly. kopf also closes its own sessions only when it ends in order.
"""

from collections.abc import Callable

import aiohttp
import kopf
from kubernetes import client


class KopfSessions:
    def __init__(self, configuration: Callable[[], client.Configuration]) -> None:
        self._configuration = configuration
        self._opened: list[aiohttp.ClientSession] = []
        self._last: kopf.ConnectionInfo | None = None

    async def open(self) -> kopf.AiohttpSession:
        """Raises config.ConfigException, and kopf.PermanentError when the same credentials are asked for again."""
        configuration = self._configuration()
        info = connection(configuration)
        if info == self._last:
            raise kopf.PermanentError("the API server does not accept the credentials")
        self._last = info
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
            trust_env=True,  # proxies from the environment, as the official client has them
            middlewares=(_authorized_by(configuration),),
        )
        self._opened.append(session)
        return kopf.AiohttpSession(server=info.server, aiohttp_session=session)

    async def close(self) -> None:
        for session in self._opened:
            await session.close()


def connection(configuration: client.Configuration) -> kopf.ConnectionInfo:
    header = configuration.get_api_key_with_prefix("BearerToken") or ""
    scheme, _, token = header.rpartition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        username=configuration.username or None,
        password=configuration.password or None,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )


def _authorized_by(configuration: client.Configuration) -> aiohttp.ClientMiddlewareType:
    async def authorize(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        request.headers.update(connection(configuration).as_http_headers())
        return await handler(request)

    return authorize
