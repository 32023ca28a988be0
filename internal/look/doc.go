// Package look follows the locks, elections and semaphores below a path, for
// those who show them: zkr top and package page. A Collector reads what has
// changed since its last look. A Model makes rows of what was found, and knows
// who has held since when.
package look
