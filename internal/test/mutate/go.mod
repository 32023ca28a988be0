module github.com/zkrecipes/zkrecipes/internal/test/mutate

go 1.25.0

replace github.com/zkrecipes/zkrecipes => ../../..

require github.com/zkrecipes/zkrecipes v0.0.0-00010101000000-000000000000
