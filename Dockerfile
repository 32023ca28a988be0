# An image with zkr, the certificates of public authorities, and nothing else.
#
#   docker build --tag zkr .
#   docker run --rm zkr inspect --servers zk1:2181 /app/backup
#   docker run --rm --publish 2181:2181 zkr server --listen 0.0.0.0:2181
#
# None is published. A release has a context with its zkr, that compiles nothing: docker build --tag zkr - < zkr_VERSION_linux_amd64_image.tar.gz
#
# It has no shell, so zkr lock finds no command to run: copy /zkr into the image of the program that needs the lock. It is the zkr
# with Kerberos, which needs an /etc/krb5.conf.
#
#   COPY --from=zkr /zkr /usr/local/bin/zkr

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY sasl/gssapi/go.mod sasl/gssapi/go.sum sasl/gssapi/go.work sasl/gssapi/
RUN go -C sasl/gssapi mod download
COPY . .
RUN CGO_ENABLED=0 go -C sasl/gssapi build -trimpath -ldflags="-s -w" -o /out/zkr ./cmd/zkr

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/zkr /zkr
USER 65532:65532
ENTRYPOINT ["/zkr"]
