# The service in a container (docs/deployment.md). The store is in the volume /store.
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY pipeline pipeline
COPY configs configs
COPY data/demo data/demo
COPY data/background data/background
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim
COPY --from=build /wheels /wheels
COPY locks/server.txt /wheels/
RUN pip install --no-cache-dir --require-hashes -r /wheels/server.txt \
    && pip install --no-cache-dir --no-deps /wheels/*.whl \
    && rm -r /wheels \
    && useradd --system --uid 10001 --no-create-home voiceclaim \
    && install --directory --owner voiceclaim --mode 700 /store
USER 10001
VOLUME /store
EXPOSE 8000
# One thread per stream; numba's cache in a folder that this user can write.
ENV OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_CACHE_DIR=/tmp/numba
HEALTHCHECK --start-period=20s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=5)"]
ENTRYPOINT ["voiceclaim", "serve", "/store/speakers", "--host", "0.0.0.0"]
