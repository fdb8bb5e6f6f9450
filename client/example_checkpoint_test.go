package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onced/onced/client"
)

// renderer gives each job an id of its own, and knows its jobs by nothing else.
type renderer struct{ jobs []string }

func (r *renderer) Start(context.Context) string {
	r.jobs = append(r.jobs, "running")
	return fmt.Sprintf("job-%d", len(r.jobs))
}

func (r *renderer) Result(_ context.Context, job string) (string, error) {
	return "film of " + job, nil
}

// The outside system can be asked only by an id that it gives itself. A checkpoint
// hands it to whoever comes next, the moment it is known: the second attempt asks
// about the job of the first one, and starts none.
func ExampleClaim_Checkpoint() {
	s, stop := exampleServer()
	defer stop()
	c, farm := s.Client(), &renderer{}

	render := func() {
		out, err := client.Do(context.Background(), c, client.Call{Key: "film-1", Method: "Render"},
			func(ctx context.Context, cl *client.Claim) (string, error) {
				job := farm.Start(ctx)
				if err := cl.Checkpoint(ctx, job); err != nil {
					return "", err
				}
				return "", errors.New("the machine goes down while it waits for the job")
			},
			client.WithReconcile(func(ctx context.Context, cl *client.Claim) client.Verdict {
				var job string
				if found, err := cl.LastCheckpoint(&job); !found || err != nil {
					// It may have died between the start and the checkpoint: nobody knows.
					return client.StillUnknown(err)
				}
				film, err := farm.Result(ctx, job)
				if err != nil {
					return client.StillUnknown(err)
				}
				return client.Happened(film)
			}))
		fmt.Println(out.Value, err)
	}

	render()
	s.Advance(time.Minute) // reconcile_after
	render()
	fmt.Println(len(farm.jobs), "job")
	// Output:
	//  the machine goes down while it waits for the job
	// film of job-1 <nil>
	// 1 job
}
