// Package measure has the benchmarks of the recipes, on the embedded ensemble
// and, with ZKR_REAL=1, on Apache ZooKeeper. They measure
//
//   - what a grant costs,
//   - how far that is from the floor: the same requests sent by the bare wire
//     client,
//   - how long it takes from a release in one session to the grant in the next,
//   - and what 10,000 of a thing cost each.
//
// The module bench runs them, together with other makers' locks, and writes the
// tables of docs/performance.md. It also uses Load and BareCycle for its own
// work.
//
// No benchmark fails because it was slow.
package measure
