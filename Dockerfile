# The CPU server. Not yet built by its authors: see docs/deploy.md.
FROM python:3.11-slim-bookworm AS build
RUN python -m venv /opt/antiphon
COPY . /src
RUN /opt/antiphon/bin/pip install --no-cache-dir '/src[local,webrtc]'

FROM python:3.11-slim-bookworm
RUN useradd --create-home --home-dir /var/lib/antiphon antiphon
COPY --from=build /opt/antiphon /opt/antiphon
USER antiphon
ENV PATH=/opt/antiphon/bin:$PATH HOME=/var/lib/antiphon PYTHONUNBUFFERED=1
# The models come at the first start, into this volume; later starts need no network.
VOLUME /var/lib/antiphon
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=300s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["antiphon", "serve", "--host", "0.0.0.0"]
