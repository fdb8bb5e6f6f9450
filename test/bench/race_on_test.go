//go:build race

package main

// raceEnabled says that the programs are built with the race detector as well.
const raceEnabled = true
