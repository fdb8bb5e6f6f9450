//go:build !race

package e2e

// raceEnabled says that the binaries are built with the race detector, too.
const raceEnabled = false
