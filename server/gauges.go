package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// scrapeTimeout bounds what a scrape asks of the store.
const scrapeTimeout = time.Second

// gauges are read when they are scraped.
type gauges struct {
	store     storage.Store
	service   *Service
	admission *admission
	replies   *replies

	calls, inFlight, unsettled, oldest *prometheus.Desc
	size, used, free, queued           *prometheus.Desc
}

// reporter is what a store may offer beside [storage.Store].
type reporter interface {
	// Stats returns how large the store is and how much waits.
	Stats() storage.Stats
}

// watch adds the gauges of a server.
func (m *Metrics) watch(store storage.Store, service *Service, admission *admission, replies *replies) error {
	return m.reg.Register(&gauges{
		store: store, service: service, admission: admission, replies: replies,
		calls:     gauge("calls_running", "Calls that are worked on; those that are held are not among them."),
		inFlight:  gauge("reply_bytes_in_flight", "Bytes of large replies that wait for their callers to read them."),
		unsettled: gauge("unsettled_operations", "Operations that are PENDING or UNRESOLVED.", "namespace"),
		oldest:    gauge("unresolved_age_seconds", "How long the oldest unsettled operation whose lease is over, or which is in doubt, has been so; zero when there is none."),
		size:      gauge("store_size_bytes", "What the store takes up on its disk, the room that it keeps for settlements included."),
		used:      gauge("store_used_bytes", "What of the store has ever been in use."),
		free:      gauge("store_free_bytes", "What of that is free to be used again; onced compact gives it back to the disk."),
		queued:    gauge("store_queued", "Updates that wait for the store.", "class"),
	})
}

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(metricPrefix, "", name), help, labels, nil)
}

// Describe implements [prometheus.Collector].
func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	to <- g.calls
	to <- g.inFlight
	to <- g.unsettled
	to <- g.oldest
	to <- g.size
	to <- g.used
	to <- g.free
	to <- g.queued
}

// Collect implements [prometheus.Collector]. What a store in trouble does not
// tell is left out.
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	set := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	set(g.calls, float64(g.admission.running()))
	set(g.inFlight, float64(g.replies.inFlight.Load()))
	for namespace, n := range g.service.unsettledByLabel() {
		set(g.unsettled, float64(n), namespace)
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	if age, err := unresolvedAge(ctx, g.store); err == nil {
		set(g.oldest, age.Seconds())
	}
	if s, ok := g.store.(reporter); ok {
		stats := s.Stats()
		set(g.size, float64(stats.Size))
		set(g.used, float64(stats.Used))
		set(g.free, float64(stats.Free))
		for class, n := range stats.Queued {
			set(g.queued, float64(n), storage.Class(class).String())
		}
	}
}

// unsettledByLabel counts the unsettled operations by what stands for their
// namespace in metrics. Every label has a count.
func (s *Service) unsettledByLabel() map[string]int64 {
	counts := map[string]int64{otherNamespaces: 0}
	for _, namespace := range s.policies.Names() {
		counts[namespace] = 0
	}
	s.unsettled.mu.Lock()
	defer s.unsettled.mu.Unlock()
	for namespace, n := range s.unsettled.byNamespace {
		counts[s.policies.Label(namespace)] += n
	}
	return counts
}

// unresolvedAge returns how long the first entry of the index of unsettled work
// has been due.
func unresolvedAge(ctx context.Context, store storage.Store) (time.Duration, error) {
	now, err := storeTime(ctx, store, "")
	if err != nil {
		return 0, err
	}
	page, err := store.ScanDue(ctx, onced.DueUnsettled, now.Now, nil, 1)
	if err != nil || len(page.Due) == 0 {
		return 0, err
	}
	return now.Now.Sub(page.Due[0].At), nil
}
