// Package measure is the benchmarks of the recipes, on the embedded ensemble and, where ZKR_REAL=1, on Apache ZooKeeper: what a
// grant costs; how far that is from the floor, which is what the requests of the recipe cost the bare wire client; how fast a
// session hands over to the next; and what many of a thing cost each. docs/performance.md has their figures.
//
// Nothing in here fails because it was slow.
package measure
