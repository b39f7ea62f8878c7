# The demo, the models of packages/pocket and all tools, in an environment with locked releases. On a CPU:
#     docker build -t orgthink . && docker run --rm orgthink
# With PyTorch for CUDA:
#     docker build --build-arg TORCH= -t orgthink-cuda . && docker run --rm --gpus all orgthink-cuda
FROM python:3.11-slim-trixie

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap gcc libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 orgthink && install --directory --owner 1000 --group 1000 /orgthink

USER 1000:1000
WORKDIR /orgthink
COPY --chown=1000:1000 . .
ARG TORCH="--torch-backend cpu"
RUN UV_NO_CACHE=1 PIP_NO_CACHE_DIR=1 make setup TORCH="$TORCH"

ENV PATH="/orgthink/.venv/bin:$PATH"
CMD ["make", "demo"]
