package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
)

// The look at who holds a lock that could not be acquired must not keep the
// caller waiting, nor print a page.
const (
	lookTimeout  = 2 * time.Second
	namedHolders = 3
)

// whoHolds says who holds the locks at paths and how many clients wait, in one
// line. It returns an empty text if it cannot find out in time.
func whoHolds(ctx context.Context, c *framework.Client, paths []string) string {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var all []string
	for _, path := range paths {
		s, err := takeSnapshot(ctx, c, path)
		switch {
		case err != nil:
			return ""
		case len(s.Holders) == 0 && len(s.Waiting) == 0: // of several paths, another one is the busy one
			continue
		}
		text := fmt.Sprintf("%s, %d waiting", s.holderText(), len(s.Waiting))
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

// holderText names the first holders.
func (s snapshot) holderText() string {
	var all []string
	for i, c := range s.Holders {
		if i == namedHolders {
			all = append(all, fmt.Sprintf("%d more", len(s.Holders)-i))
			break
		}
		all = append(all, fmt.Sprintf("%s (session %s, joined %v ago)", readable(c.Data), c.Session, c.age()))
	}
	if len(all) == 0 {
		return "held by nobody now"
	}
	return "held by " + strings.Join(all, ", ")
}
