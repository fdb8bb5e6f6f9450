//go:build unix && !linux

package main

import "syscall"

// endWithParent does nothing: there is no such service of this kernel. A process that
// this one has started outlives its SIGKILL.
func endWithParent(*syscall.SysProcAttr) {}
