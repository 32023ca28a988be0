package main

import (
	"context"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/zkrecipes/zkrecipes/framework"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := framework.New(os.Getenv("ZKR_SERVERS"), framework.WithSlog(slog.Default()), metrics())
	if err != nil {
		log.Fatal(err)
	}
	err = report(ctx, client, new(store).write)
	_ = client.Close()
	if ctx.Err() == nil {
		log.Fatal(err) // systemd or Kubernetes starts it again
	}
}
