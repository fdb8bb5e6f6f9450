package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// sampleEvery is how often something is looked at whose peak is wanted.
const sampleEvery = 50 * time.Millisecond

// peak looks at a quantity until stopped, and returns the greatest value seen.
func peak(look func() (int64, error)) (stop func() (int64, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	var (
		greatest int64
		failure  error
		watching sync.WaitGroup
	)
	watching.Go(func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			v, err := look()
			if err != nil {
				failure = err
				return
			}
			greatest = max(greatest, v)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() (int64, error) {
		cancel()
		watching.Wait()
		return greatest, failure
	}
}

// peakRSS watches the anonymous memory of a server.
func peakRSS(s *server) (stop func() (int64, error)) {
	return peak(func() (int64, error) { return procField(s.pid(), "status", "RssAnon", 1024) })
}

// written returns how many bytes a server has caused to be written to a disk.
func written(s *server) (int64, error) { return procField(s.pid(), "io", "write_bytes", 1) }

// procField reads a number from a file of /proc about a process.
func procField(pid int, file, field string, unit int64) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			v, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return v * unit, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/%s has no %s", pid, file, field)
}

// dataFile is the file of a store that holds its records.
func dataFile(dir string) string { return filepath.Join(dir, "onced.db") }

// fileSize returns the greater of what a file seems to take and what it takes.
func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	blocks := int64(0)
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		blocks = st.Blocks * 512
	}
	return max(info.Size(), blocks), nil
}

const mib = 1 << 20

func inMiB(n int64) float64 { return float64(n) / mib }
