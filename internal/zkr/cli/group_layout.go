package cli

import "github.com/zkrecipes/zkrecipes/recipes/presence"

// GroupLayout is the flag for the layout of a group's znodes.
func GroupLayout() EnumFlag[presence.Layout] {
	return EnumFlag[presence.Layout]{
		Names:  []string{"member", "protected", "party", "shallow-party"},
		Values: []presence.Layout{presence.LayoutMember, presence.LayoutProtected, presence.LayoutParty, presence.LayoutShallowParty},
	}
}
