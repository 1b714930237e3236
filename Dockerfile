# everlearn on the CPU, without a compiler or a cache in the image.
#   docker build -t everlearn .
#   docker run --rm everlearn demo --out /work/runs
#   docker run --rm -v "$PWD:/work" everlearn run --learner cope --stream split-digits --json
# This file has not been built by the project's own checks yet; see CONTRIBUTING.md.

FROM python:3.13-slim AS build
WORKDIR /source
RUN pip install --no-cache-dir "build>=1.2" "setuptools>=77"
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m build --wheel --outdir /wheels

FROM python:3.13-slim
LABEL org.opencontainers.image.title="everlearn" \
      org.opencontainers.image.description="A classifier that never stops learning" \
      org.opencontainers.image.licenses="MIT"
# libgomp is what torch computes with on the CPU; the slim image lacks it.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*
# PyTorch's CPU build: the default on Linux brings several gigabytes of CUDA libraries.
COPY constraints.txt /tmp/constraints.txt
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu \
        "$(grep -i '^torch==' /tmp/constraints.txt)"
COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir -c /tmp/constraints.txt /tmp/wheels/*.whl && rm -r /tmp/wheels
RUN useradd --create-home --uid 1000 everlearn && mkdir /work && chown everlearn /work
USER everlearn
WORKDIR /work
ENV EVERLEARN_DATA=/work/data
ENTRYPOINT ["everlearn"]
CMD ["--help"]
