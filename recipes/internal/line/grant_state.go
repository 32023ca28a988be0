package line

// state is where a grant is in its life.
//
//	            +---- taken ----+
//	            v               |
//	claimed -> held -> vacated: idle
//	  |         |               |
//	  |         +---- ended ----+-> leaving -> removed: left
//	  |         |               |      |
//	  +---------+--- failed ----+------+-----> lost
//
// Left and lost are final, whatever becomes of the session.
type state uint8

const (
	claimed state = iota // first in line; no caller has it yet
	held                 // callers have shares of it
	idle                 // nobody has: it is kept for the next caller
	leaving              // its znode is being removed, at the request of this process
	left                 // its znode is gone, and it was held until then
	lost                 // it ended before it was released
)

func (s state) String() string {
	return [...]string{"claimed", "held", "idle", "leaving", "left", "lost"}[s]
}

// event is what moves a grant on.
type event uint8

const (
	granted event = iota // it counts among the grants of its local queue
	taken                // a caller was given a share
	vacated              // the last share was left, and the znode is kept
	ended                // it begins to leave the line
	removed              // our removal of the znode is confirmed
	deleted              // the znode was found missing, or can no longer be read
	failed               // the session is lost or in doubt, MaxHold is over, or the client closes
)

func (e event) String() string {
	return [...]string{"granted", "taken", "vacated", "ended", "removed", "deleted", "failed"}[e]
}

// next returns the state that e leads to.
func next(s state, e event) state {
	if s == left || s == lost {
		return s
	}
	switch e {
	case granted, taken:
		if s != leaving {
			return held
		}
	case vacated:
		if s == held {
			return idle
		}
	case ended:
		if s != claimed {
			return leaving
		}
	case removed:
		if s == leaving {
			return left
		}
	case deleted:
		if s != leaving { // it was our own removal that was found
			return lost
		}
	case failed:
		return lost
	}
	return s
}
