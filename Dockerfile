# The host with the SDK, the default plugins and all dependencies: `docker build -t berth .`
# Installed by an ordinary user from the files of the repository; the versions are those of host/constraints.txt.

FROM debian:13-slim AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir /berth && chown 65532:65532 /berth
USER 65532:65532
ENV HOME=/berth
ENV PATH=/berth/venv/bin:/usr/bin:/bin
WORKDIR /berth/source
COPY --chown=65532:65532 pyproject.toml README.md LICENSE ./
COPY --chown=65532:65532 proto ./proto
COPY --chown=65532:65532 examples ./examples
COPY --chown=65532:65532 sdk ./sdk
COPY --chown=65532:65532 plugins ./plugins
COPY --chown=65532:65532 host ./host
RUN python3 -m venv /berth/venv
RUN pip install --no-cache-dir -c host/constraints.txt ./sdk './plugins[dra]' ./plugins/scheduler_plugins '.[tracing]'
# What the image has (SBOM), in the form of CycloneDX.
RUN python3 -m venv /berth/tools \
 && /berth/tools/bin/pip install --no-cache-dir cyclonedx-bom==7.5.0 \
 && /berth/tools/bin/cyclonedx-py environment /berth/venv/bin/python3 --output-reproducible -o /berth/sbom.cdx.json
RUN berth --version

# This stage has no shell, no package manager and no root user. Its Python, 3.13, is Debian 13's, as in the stage above.
FROM gcr.io/distroless/python3-debian13:nonroot
LABEL org.opencontainers.image.title="berth" \
      org.opencontainers.image.description="A Kubernetes scheduler whose plugins run in other processes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /berth/venv /berth/venv
COPY --from=build /berth/sbom.cdx.json /berth/sbom.cdx.json
ENV PATH=/berth/venv/bin:/usr/bin:/bin
ENV PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/berth/venv/bin/python3", "-m", "berth_host"]
CMD ["--help"]
