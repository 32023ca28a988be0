// Command zkr is github.com/zkrecipes/zkrecipes/cmd/zkr with Kerberos, for its
// --sasl gssapi. Released binaries and images are made of it.
package main

import (
	"os"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/zkr"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/sasl/gssapi"
)

var program = zkr.WithKerberos(kerberos)

func main() { os.Exit(program(os.Args[1:], os.Stdout, os.Stderr)) }

func kerberos(c cli.KerberosCredentials) framework.SASL {
	var opts []gssapi.Option
	if c.Password != nil {
		opts = append(opts, gssapi.WithPasswordFunc(c.User, c.Password))
	}
	if c.Keytab != "" {
		opts = append(opts, gssapi.WithKeytab(c.Keytab, c.User))
	}
	if c.CCache != "" {
		opts = append(opts, gssapi.WithCCache(c.CCache))
	}
	if c.ServerPrincipal != "" {
		opts = append(opts, gssapi.WithServerPrincipal(c.ServerPrincipal))
	}
	return gssapi.New(opts...)
}
