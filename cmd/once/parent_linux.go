package main

import "syscall"

// endWithParent has the kernel kill a process when the thread that has started it
// ends, and so when this process does, be it by SIGKILL.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
