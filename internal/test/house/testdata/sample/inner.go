package sample

type inner struct{ n, read int }

func (i *inner) add() { i.n++ }

func (i inner) sum() int { return i.n + i.read }
