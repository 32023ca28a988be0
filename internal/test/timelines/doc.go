// Package timelines draws what docs/concepts.md shows: it plays a scene in
// virtual time, and draws when each thing has happened.
package timelines
