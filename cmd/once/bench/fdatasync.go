package bench

import (
	"errors"
	"os"
	"time"
)

// What is tried of a disk: so many writes of a page, each synced.
const (
	syncTries = 200
	page      = 4096
)

// tryFdatasync writes pages into a file of zeros in dir, a sync after each, and
// returns how long each took in seconds. The file has all of its blocks before, so
// a sync has no more to do than to write the page.
func tryFdatasync(dir string) (took []float64, err error) {
	f, err := os.CreateTemp(dir, "fdatasync.*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if _, err := f.Write(make([]byte, syncTries*page)); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	content := resultOf(page)
	for i := range syncTries {
		start := time.Now()
		if _, err := f.WriteAt(content, int64(i)*page); err != nil {
			return nil, err
		}
		if err := fdatasync(f); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start).Seconds())
	}
	return took, nil
}
