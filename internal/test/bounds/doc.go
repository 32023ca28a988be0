// Package bounds shows that every call of the public packages ends in the time
// that a table in docs/performance.md says.
package bounds
