package cli

// AllCommands are those of the packages that import this one.
var AllCommands []Commands
