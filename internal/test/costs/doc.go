// Package costs measures what the recipes cost: requests, transactions, watches
// and who is woken. A table in docs/performance.md has the figures, and the
// comments of the recipes quote it.
package costs
