# One image for every service: `docker run twincal api`, `… ingest`, `… worker`, `… migrate`.

FROM python:3.11-slim-bookworm AS build
# PyBullet has wheels for x86-64 alone; elsewhere it is built from source (a quarter of an hour).
RUN apt-get update \
 && if [ "$(dpkg --print-architecture)" != amd64 ]; then apt-get install -y --no-install-recommends build-essential; fi \
 && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/venv
WORKDIR /srv/twincal
COPY requirements-service.lock ./
RUN /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --require-hashes \
      -r requirements-service.lock
COPY pyproject.toml README.md LICENSE ./
COPY app ./app
COPY migrations ./migrations
RUN /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation --editable . \
 && /opt/venv/bin/python -m compileall -q app

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/twincal twincal \
 && install --directory --owner twincal /var/lib/twincal/cache
COPY --from=build /opt/venv /opt/venv
COPY --from=build /srv/twincal /srv/twincal
# Caches of compiled kernels and fonts: outside the image's own files, which the service can't write.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/var/lib/twincal/cache/numba \
    MPLCONFIGDIR=/var/lib/twincal/cache/matplotlib
USER twincal
WORKDIR /var/lib/twincal
ENTRYPOINT ["twincal"]
CMD ["--help"]
