// Package broken has a wrong type on one system.
package broken
