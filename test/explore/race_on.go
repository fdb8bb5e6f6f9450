//go:build race

package main

// raceFactor divides the number of states that the tests explore: the race
// detector makes each of them many times as slow.
const raceFactor = 10
