package cache_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A program reads its configuration, and writes to it.
func Example() {
	ens, err := testutil.New()
	if err != nil {
		log.Fatal(err)
	}
	defer ens.Close()
	client, err := framework.New(ens.Servers())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	if err := client.MakePersistentPath(ctx, "/config/workers"); err != nil {
		log.Fatal(err)
	}
	if _, err := client.Set(ctx, "/config/workers", []byte("8"), -1); err != nil {
		log.Fatal(err)
	}

	config, err := cache.New(client, "/config")
	if err != nil {
		log.Fatal(err)
	}
	config.Start()
	defer config.Close()
	workers := cache.NewValue(config, "/config/workers", func(data []byte) (int, error) { return strconv.Atoi(string(data)) })
	if _, err := config.Synced(ctx); err != nil {
		log.Fatal(err)
	}
	n, err := workers.Get()
	fmt.Println(n, err)

	stat, err := client.Set(ctx, "/config/workers", []byte("many"), -1)
	if err != nil {
		log.Fatal(err)
	}
	view, err := config.Reach(ctx, stat.Mzxid) // shows at least that write
	if err != nil {
		log.Fatal(err)
	}
	for node := range view.All() {
		fmt.Printf("%s %q\n", node.Path, node.Data)
	}
	n, err = workers.Get() // the last good one
	fmt.Println(n, err)
	// Output:
	// 8 <nil>
	// /config ""
	// /config/workers "many"
	// 8 decode /config/workers: strconv.Atoi: parsing "many": invalid syntax
}

// A listener first gets what is, and then every difference.
func ExampleCache_Listen() {
	ens, err := testutil.New()
	if err != nil {
		log.Fatal(err)
	}
	defer ens.Close()
	client, err := framework.New(ens.Servers())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	services, err := cache.New(client, "/services")
	if err != nil {
		log.Fatal(err)
	}
	services.Start()
	defer services.Close()
	heard := make(chan cache.Change)
	stop := services.Listen(func(b cache.Batch) {
		for _, change := range b.Changes {
			heard <- change
		}
	})
	defer stop()
	if err := client.MakePersistentPath(ctx, "/services/billing"); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		change := <-heard
		fmt.Println(change.Kind, change.Path())
	}
	// Output:
	// added /services
	// added /services/billing
}

// A loop has the first whole view, and then the latest one at each change. It
// ends with its context, by a break, or when the cache is closed.
func ExampleCache_Views() {
	ens, err := testutil.New()
	if err != nil {
		log.Fatal(err)
	}
	defer ens.Close()
	client, err := framework.New(ens.Servers())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	services, err := cache.New(client, "/services")
	if err != nil {
		log.Fatal(err)
	}
	services.Start()
	defer services.Close()
	for view, status := range services.Views(ctx) {
		if status.State != cache.Synced {
			continue // the view may be out of date, since status.Since
		}
		fmt.Println(view.Len(), "znodes")
		if view.Len() == 2 {
			break
		}
		if _, err := client.Create(ctx, []string{"/services", "/services/billing"}[view.Len()], nil, zk.FlagPersistent); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 0 znodes
	// 1 znodes
	// 2 znodes
}

// A program reloads a setting. A bad one does not end the loop, which has the
// last good one with the error. The end of its context does.
func ExampleValue_Changes() {
	ens, err := testutil.New()
	if err != nil {
		log.Fatal(err)
	}
	defer ens.Close()
	client, err := framework.New(ens.Servers())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if _, err := client.Create(ctx, "/workers", []byte("8"), zk.FlagPersistent); err != nil {
		log.Fatal(err)
	}

	config, err := cache.New(client, "/workers")
	if err != nil {
		log.Fatal(err)
	}
	config.Start()
	defer config.Close()
	workers := cache.NewValue(config, "/workers", func(data []byte) (int, error) { return strconv.Atoi(string(data)) })
	for n, err := range workers.Changes(ctx) {
		fmt.Println(n, err)
		switch {
		case ctx.Err() != nil: // the last iteration
		case err != nil:
			cancel()
		default:
			if _, err := client.Set(ctx, "/workers", []byte("many"), -1); err != nil {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// 8 <nil>
	// 8 decode /workers: strconv.Atoi: parsing "many": invalid syntax
	// 8 cache /workers: context canceled; decode /workers: strconv.Atoi: parsing "many": invalid syntax
}

// Curator's setData().compressed() and create().compressed() write gzip. A
// decoder reads it. One that reads all of it must have a limit: a few bytes can
// become gigabytes.
func ExampleNewValue_compressed() {
	decompress := func(data []byte) ([]byte, error) {
		const most = 8 << 20
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		plain, err := io.ReadAll(io.LimitReader(r, most+1))
		if err == nil && len(plain) > most {
			err = fmt.Errorf("more than %d bytes", most)
		}
		return plain, err
	}

	ens, err := testutil.New()
	if err != nil {
		log.Fatal(err)
	}
	defer ens.Close()
	client, err := framework.New(ens.Servers())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	_, _ = w.Write([]byte("8 workers")) // into memory
	_ = w.Close()
	if _, err := client.Create(ctx, "/config", compressed.Bytes(), 0); err != nil {
		log.Fatal(err)
	}

	c, err := cache.New(client, "/config")
	if err != nil {
		log.Fatal(err)
	}
	c.Start()
	defer c.Close()
	value := cache.NewValue(c, "/config", decompress)
	if _, err := c.Synced(ctx); err != nil {
		log.Fatal(err)
	}
	text, err := value.Get()
	fmt.Printf("%s %v\n", text, err)
	// Output:
	// 8 workers <nil>
}
