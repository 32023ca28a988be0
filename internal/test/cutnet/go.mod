module github.com/zkrecipes/zkrecipes/internal/test/cutnet

go 1.25.0

replace github.com/zkrecipes/zkrecipes => ../../..

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/zkrecipes/zkrecipes v0.0.0-00010101000000-000000000000
	go.uber.org/goleak v1.3.0
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
