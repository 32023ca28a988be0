package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
)

// The look at who holds a lock that could not be acquired must not keep the
// caller waiting, nor print a page.
const (
	lookTimeout  = 2 * time.Second
	namedHolders = 3
)

// whoHolds says who holds the locks at paths and how many clients wait, in one
// line. It returns an empty text if it cannot find out in time. It costs few
// requests, however many wait.
func whoHolds(ctx context.Context, c *framework.Client, paths []string) string {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var all []string
	for _, path := range paths {
		line, err := inspect.Read(ctx, c, path, inspect.WithoutDetails())
		if err == nil {
			err = inspect.Fill(ctx, c, &line, namedHolders)
		}
		switch {
		case err != nil:
			return ""
		case len(line.Holders) == 0 && len(line.Waiting) == 0: // of several paths, another one is the busy one
			continue
		}
		text := fmt.Sprintf("held by %s, %d waiting", names(line.Holders), len(line.Waiting))
		if len(paths) > 1 {
			text = path + " " + text
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return "nobody holds it now"
	}
	return strings.Join(all, "; ")
}

// names says who the first of the holders are.
func names(holders []inspect.Contender) string {
	if len(holders) == 0 {
		return "nobody now"
	}
	var all []string
	for i, c := range contendersOf(holders[:min(namedHolders, len(holders))], time.Now()) {
		if holders[i].Created == 0 {
			all = append(all, "a client whose znode may not be read")
			continue
		}
		all = append(all, fmt.Sprintf("%s (session %s, joined %v ago)", readable(c.Data), c.Session, c.age()))
	}
	if more := len(holders) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}
