// Package child ends processes together with the one that has started them, and
// reaps those that nobody waits for.
package child
