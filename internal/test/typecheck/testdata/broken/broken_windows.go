package broken

var _ int = "a string"
