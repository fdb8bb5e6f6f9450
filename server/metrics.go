package server

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/onced/onced"
	"github.com/onced/onced/server/sweep"
	"github.com/onced/onced/storage"
)

// Metrics counts what a server does. No series of it grows with keys: labels are
// names of this program, of its RPCs and of configured namespaces.
//
// It is the [Observer] of a [Service] and what a sweeper tells its batches to.
// All methods are safe for concurrent use.
type Metrics struct {
	claims      *prometheus.CounterVec
	refusals    *prometheus.CounterVec
	settlements *prometheus.CounterVec
	alarms      *prometheus.CounterVec
	keyTimes    *prometheus.CounterVec
	waiters     prometheus.Gauge
	calls       *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	swept       *prometheus.CounterVec
	lag         *prometheus.GaugeVec
	batch       prometheus.Histogram
	commit      prometheus.Histogram
	waited      *prometheus.HistogramVec
	written     prometheus.Counter

	reg prometheus.Registerer
}

var _ Observer = (*Metrics)(nil)

// durations are the upper bounds, in seconds, of the latency histogram: from a
// read without a sync to a call that was held for as long as calls are held.
var durations = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25}

// commits are the upper bounds, in seconds, of what a commit takes and of the wait
// for one; batches those of how many updates share it.
var (
	commits = []float64{.00025, .0005, .001, .002, .004, .008, .016, .032, .064, .125, .25, .5, 1, 2, 4}
	batches = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)

// NewMetrics returns metrics that are registered with reg. It panics, as
// prometheus does, when reg has metrics of the same names.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		claims:      counter("claims_total", "Claims that were answered with an outcome.", "namespace", "outcome"),
		refusals:    counter("refusals_total", "Calls that were answered with an error, by the reason of its ErrorInfo: FINGERPRINT_MISMATCH and SUBJECT_MISMATCH are callers' bugs, CLAIM_LOST holders that came too late, OVERLOADED calls that were shed.", "namespace", "rpc", "reason"),
		settlements: counter("settlements_total", "Operations that became COMPLETED or FAILED.", "namespace", "state", "by"),
		alarms:      counter("alarms_total", "Reports which mean that an effect may have happened twice, or that a decision was overruled.", "namespace", "alarm"),
		keyTimes:    counter("key_time_changes_total", "Claims that named another key_time than the operation is bound to.", "namespace"),
		waiters: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricPrefix, Name: "waiters", Help: "Calls that are held until an operation changes.",
		}),
		calls: counter("rpcs_total", "Calls that ended, by status code; those that gRPC refused before a handler saw them included.", "service", "rpc", "code"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: metricPrefix, Name: "rpc_duration_seconds", Buckets: durations,
			Help: "How long calls took, the time for which they were held included.",
		}, []string{"service", "rpc"}),
		swept: counter("sweep_entries_total", "Index entries that the sweep came by, by what became of them.", "index", "action"),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: metricPrefix, Name: "sweep_lag_seconds", Help: "How long the next entry that the sweep will come by has been due; zero when none is.",
		}, []string{"index"}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricPrefix, Name: "commit_batch_size", Buckets: batches,
			Help: "How many updates shared a commit; those that changed nothing included.",
		}),
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricPrefix, Name: "commit_seconds", Buckets: commits,
			Help: "How long a commit took, from the first decision until all was durable.",
		}),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: metricPrefix, Name: "queue_seconds", Buckets: commits,
			Help: "How long the first update of its class in a batch had waited to be taken up.",
		}, []string{"class"}),
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: metricPrefix, Name: "store_written_bytes_total", Help: "Bytes of the keys and values that were given to the store's engine.",
		}),
		reg: reg,
	}
	reg.MustRegister(m.claims, m.refusals, m.settlements, m.alarms, m.keyTimes, m.waiters,
		m.calls, m.duration, m.swept, m.lag, m.batch, m.commit, m.waited, m.written)
	return m
}

const metricPrefix = "onced"

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: metricPrefix, Name: name, Help: help}, labels)
}

// Claimed implements [Observer].
func (m *Metrics) Claimed(namespace string, outcome onced.Outcome) {
	m.claims.WithLabelValues(namespace, outcome.String()).Inc()
}

// Refused implements [Observer].
func (m *Metrics) Refused(namespace, rpc, reason string) {
	m.refusals.WithLabelValues(namespace, rpc, reason).Inc()
}

// Settled implements [Observer].
func (m *Metrics) Settled(namespace string, state onced.State, by onced.SettledBy) {
	m.settlements.WithLabelValues(namespace, state.String(), by.String()).Inc()
}

// Alarm implements [Observer].
func (m *Metrics) Alarm(namespace string, a onced.Alarm) {
	m.alarms.WithLabelValues(namespace, a.String()).Inc()
}

// KeyTimeChanged implements [Observer].
func (m *Metrics) KeyTimeChanged(namespace string) {
	m.keyTimes.WithLabelValues(namespace).Inc()
}

// Waiters implements [Observer].
func (m *Metrics) Waiters(delta int) { m.waiters.Add(float64(delta)) }

// Committed counts a batch of updates; it is what a store is told to observe with.
func (m *Metrics) Committed(c storage.Commit) {
	for class, n := range c.Requests {
		if n > 0 {
			m.waited.WithLabelValues(storage.Class(class).String()).Observe(c.Waited[class].Seconds())
		}
	}
	if c.Took == 0 {
		return
	}
	n := 0
	for _, of := range c.Requests {
		n += of
	}
	m.batch.Observe(float64(n))
	m.commit.Observe(c.Took.Seconds())
	m.written.Add(float64(c.Bytes))
}

// Swept counts a batch of a sweep; it is the Observe of a [sweep.Config].
func (m *Metrics) Swept(b sweep.Batch) {
	index := sweep.Name(b.Kind)
	for action, n := range map[string]int{"deleted": b.Deleted, "rewritten": b.Rewritten, "kept": b.Kept, "failed": b.Failed} {
		m.swept.WithLabelValues(index, action).Add(float64(n))
	}
	m.lag.WithLabelValues(index).Set(b.Lag.Seconds())
}

// rpcStats counts calls as gRPC sees them. It stands outside of all
// interceptors: a message above the limit, or one that cannot be decoded, never
// reaches those. gRPC tells it of known methods only.
type rpcStats struct{ m *Metrics }

type rpcKey struct{}

// TagRPC implements [stats.Handler].
func (rpcStats) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, rpcKey{}, info.FullMethodName)
}

// HandleRPC implements [stats.Handler].
func (h rpcStats) HandleRPC(ctx context.Context, s stats.RPCStats) {
	end, ok := s.(*stats.End)
	if !ok {
		return
	}
	name, _ := ctx.Value(rpcKey{}).(string)
	service, rpc := splitMethod(name)
	h.m.calls.WithLabelValues(service, rpc, status.Code(end.Error).String()).Inc()
	h.m.duration.WithLabelValues(service, rpc).Observe(end.EndTime.Sub(end.BeginTime).Seconds())
}

// TagConn implements [stats.Handler].
func (rpcStats) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (rpcStats) HandleConn(context.Context, stats.ConnStats) {}

// splitMethod takes a full gRPC method name, /service/rpc, apart.
func splitMethod(full string) (service, rpc string) {
	full = strings.TrimPrefix(full, "/")
	i := strings.LastIndexByte(full, '/')
	return full[:max(i, 0)], full[i+1:]
}
