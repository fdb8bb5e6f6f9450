package server

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// greatestStates bounds the states that a listing may name, each as often as it likes.
const greatestStates = 16

func validateList(req *oncedv1.ListOperationsRequest, policies *Policies, pages pageTokens) (*listCall, error) {
	var v violations
	c := &listCall{
		namespace: req.GetNamespace(), key: req.GetKey(), method: req.GetMethod(),
		policy: policies.For(req.GetNamespace()),
	}
	v.check("namespace", onced.ValidateNamespace(c.namespace))
	if c.key != "" {
		v.check("key", onced.ValidateKey(c.key))
	}
	if c.method != "" {
		v.check("method", onced.ValidateMethod(c.method))
	}
	c.states = v.states(req.GetStates())
	c.minAge = v.minAge(req.GetMinAge())
	c.pageSize = v.pageSize(req.GetPageSize())
	if len(v) > 0 {
		return nil, v.err()
	}
	c.filters, c.from = c.digest(), c.begin()
	if token := req.GetPageToken(); token != "" {
		var err error
		c.from, err = pages.position(c.filters, c.from.phase, token)
		v.check("page_token", err)
	}
	return c, v.err()
}

// states returns the set of the states that are named, of which there may be
// millions in one request.
func (v *violations) states(list []oncedv1.State) (set stateSet) {
	if len(list) > greatestStates {
		v.add("states", "must be at most %d, are %d; name each once", greatestStates, len(list))
		return 0
	}
	for _, s := range list {
		if s < 0 || s > math.MaxUint8 || !onced.State(s).Known() {
			v.add("states", "%d is not one that this server knows; say PENDING, UNRESOLVED, RELEASED, COMPLETED or FAILED", s)
			return 0
		}
		set |= setOf(onced.State(s))
	}
	return set
}

func (v *violations) minAge(d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	age, ok := v.duration("min_age", d)
	if ok && age < 0 {
		v.add("min_age", "%v must not be negative; leave it unset for every age", age)
	}
	return age
}

// pageSize returns how many entries a page may have: 0 is the default.
func (v *violations) pageSize(n int32) int {
	if n == 0 {
		return defaultPage
	}
	if n < 1 || n > greatestPage {
		v.add("page_size", "%d must lie within 1 to %d; 0 means %d", n, greatestPage, defaultPage)
	}
	return int(n)
}
