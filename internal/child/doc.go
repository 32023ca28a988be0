// Package child ends processes together with the one that has started them.
package child
