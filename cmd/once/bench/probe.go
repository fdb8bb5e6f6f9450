package bench

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Names of the series that are read of a server's metrics.
const (
	seriesBatchSum   = "onced_commit_batch_size_sum"
	seriesBatchCount = "onced_commit_batch_size_count"
	seriesUsed       = "onced_store_used_bytes"
)

// probe looks at the server with a store from outside.
type probe struct {
	process Process
	http    *http.Client
}

func newProbe(p Process) *probe {
	return &probe{process: p, http: &http.Client{Timeout: 10 * time.Second}}
}

// reading is what a probe has seen at one moment; nil is what it cannot know.
type reading struct {
	rssAnon          *float64 // bytes
	written          *float64 // bytes that the process has had written, since it began
	used             *float64 // bytes of the store's file up to the last one in use
	batches, grouped *float64 // commits since the process began, and the requests in them
}

// read looks at everything.
func (p *probe) read(ctx context.Context) reading {
	series := p.metrics(ctx)
	r := reading{batches: series[seriesBatchCount], grouped: series[seriesBatchSum], used: series[seriesUsed]}
	if kib := p.proc("status", "RssAnon:"); kib != nil {
		r.rssAnon = known(*kib * 1024)
	}
	r.written = p.proc("io", "write_bytes:")
	if info, err := os.Stat(filepath.Join(p.process.Data, "onced.db")); r.used == nil && p.process.Data != "" && err == nil {
		r.used = known(float64(info.Size()))
	}
	return r
}

// metrics reads the series of the operators' listener that have no labels.
func (p *probe) metrics(ctx context.Context) map[string]*float64 {
	series := map[string]*float64{}
	if p.process.Ops == "" {
		return series
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.process.Ops+"/metrics", nil)
	if err != nil {
		return series
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return series
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			series[name] = &v
		}
	}
	return series
}

// proc reads a number from a file of /proc, which only Linux has.
func (p *probe) proc(file, name string) *float64 {
	if p.process.PID == 0 {
		return nil
	}
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.process.PID), file))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != name {
			continue
		}
		if v, err := strconv.ParseFloat(fields[1], 64); err == nil {
			return &v
		}
	}
	return nil
}

// fdatasyncs returns how long, in seconds, the disk of the store takes for what
// every commit waits for; none if it cannot be tried.
func (p *probe) fdatasyncs() []float64 {
	if p.process.Data == "" {
		return nil
	}
	took, err := tryFdatasync(p.process.Data)
	if err != nil {
		return nil
	}
	return took
}
