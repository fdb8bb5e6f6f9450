//go:build faults

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/onced/onced/storage/bolt"
)

// The switches of a build with the tag faults are files in the folder that
// ONCED_FAULTS names: a switch is on while its file is there.
const (
	faultDieBeforeCommit = "die-before-commit" // kill -9 before anything is written
	faultDieBeforeAnswer = "die-before-answer" // kill -9 after the sync, before any answer
	faultHoldSync        = "hold-sync"         // see hold
	faultHeld            = "held"
	faultFailSync        = "fail-sync"
	faultDiskFull        = "disk-full"
	faultSlowCommit      = "slow-commit" // each commit takes 50 ms longer
	faultBatchLimit      = "batch-limit" // holds how many updates a commit takes at most; read at start
)

const (
	slowCommit  = 50 * time.Millisecond
	switchCheck = 2 * time.Millisecond
)

type faultFolder string

func (f faultFolder) on(name string) bool {
	_, err := os.Stat(filepath.Join(string(f), name))
	return err == nil
}

func withFaults(o bolt.Options) bolt.Options {
	f := faultFolder(os.Getenv("ONCED_FAULTS"))
	if f == "" {
		return o
	}
	limit, _ := f.read(faultBatchLimit)
	batchLimit, _ := strconv.Atoi(strings.TrimSpace(limit))
	return o.WithFaults(bolt.Faults{
		BatchLimit: batchLimit,
		BeforeCommit: func() error {
			if f.on(faultDieBeforeCommit) {
				die()
			}
			if f.on(faultDiskFull) {
				return bolt.DiskFull
			}
			return nil
		},
		AfterCommit: func() error {
			f.hold()
			if f.on(faultSlowCommit) {
				time.Sleep(slowCommit)
			}
			if f.on(faultFailSync) {
				return errors.New("fault switch: the sync failed")
			}
			return nil
		},
		BeforeAnswer: func() {
			if f.on(faultDieBeforeAnswer) {
				die()
			}
		},
	})
}

// hold keeps a commit that was not synced for as long as the switch is there and
// reads as it did at first: writing something else into it lets this commit go
// and holds the next. The file "held" repeats what it reads while a commit is held.
func (f faultFolder) hold() {
	told := filepath.Join(string(f), faultHeld)
	first, held := f.read(faultHoldSync)
	if !held {
		return
	}
	_ = os.WriteFile(told, []byte(first), 0o600)
	for now := first; held && now == first; now, held = f.read(faultHoldSync) {
		time.Sleep(switchCheck)
	}
	_ = os.Remove(told)
}

func (f faultFolder) read(name string) (content string, there bool) {
	b, err := os.ReadFile(filepath.Join(string(f), name))
	return string(b), err == nil
}

// die ends the process as kill -9 does.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
