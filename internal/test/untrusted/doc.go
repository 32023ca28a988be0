// Package untrusted has tests of the recipes against what is not trusted, in
// virtual time: a server that lies, and a neighbor that does whatever it likes
// to the znodes of the recipes. docs/trust.md says what each can and cannot
// do.
package untrusted
