# The operator. Build from the repository's root:
#   docker build -f deploy/docker/operator.Dockerfile -t kvarn-operator:0.1.0 .
# The digest pins the base: --build-arg BASE_DIGEST=@sha256:... A company's package index: --build-arg PIP_INDEX_URL=...
ARG BASE_IMAGE=python:3.11-slim-bookworm
ARG BASE_DIGEST=

FROM ${BASE_IMAGE}${BASE_DIGEST} AS builder
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/opt/kvarn/venv/bin:$PATH
ARG PIP_INDEX_URL
WORKDIR /src
RUN python -m venv /opt/kvarn/venv
COPY pyproject.toml constraints.txt ./
COPY deploy/docker/requirements.py deploy/docker/imagekit/unused.py /build/
RUN python /build/requirements.py pyproject.toml operator > operator.txt \
    && pip install -c constraints.txt -r operator.txt
COPY README.md LICENSE ./
COPY proto proto
COPY engine engine
COPY prefill_worker prefill_worker
COPY decode_worker decode_worker
COPY router router
COPY operator operator
COPY cli cli
COPY bench bench
RUN pip install --no-deps . \
    && python /build/unused.py /opt/kvarn/venv/lib/python*/site-packages \
    && pip uninstall --yes pip

FROM ${BASE_IMAGE}${BASE_DIGEST}
COPY --from=builder /opt/kvarn/venv /opt/kvarn/venv
# Any user id may run this, on a root file system that cannot be written: what is written goes to /tmp.
ENV PATH=/opt/kvarn/venv/bin:$PATH HOME=/tmp LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /
LABEL org.opencontainers.image.title=kvarn-operator org.opencontainers.image.version=0.1.0
USER 65532:65532
ENTRYPOINT ["python", "-m", "kvarn_operator"]
