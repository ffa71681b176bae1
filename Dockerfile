# The command gradus, with the Python module: docker build -t gradus . && docker run gradus --help
FROM debian:12 AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git
COPY . /gradus
RUN cd /gradus && scripts/package deb

FROM debian:12
COPY --from=build /gradus/build/packages/*.deb /packages/
RUN apt-get update && apt-get install -y --no-install-recommends /packages/*.deb \
  && rm -rf /var/lib/apt/lists/* /packages
ENTRYPOINT ["gradus"]
