# The project and its packages, for a container or Kubernetes (docs/installing.md): docker build -t longtail .
# torch has CUDA. Without: --build-arg TORCH="torch==2.13.0 --index-url ADDRESS", the address of PyTorch's CPU wheels.
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
WORKDIR /longtail
COPY requirements*.lock ./
ARG TORCH="--require-hashes -r requirements-torch.lock"
ARG LOCKS="-r requirements.lock"
RUN pip install --no-cache-dir --no-deps $TORCH && pip install --no-cache-dir --no-deps --require-hashes $LOCKS
COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation -e .
CMD ["longtail", "--help"]
