package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
	"github.com/onced/onced/fingerprint"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// These reports are about what makes two calls the same one.

// guarded does what an interceptor does with a request that it has decoded: it takes
// the identity of the request, and runs the handler under it.
func (r *rig) guarded(c *client.Client, key string, req proto.Message, handler func(proto.Message) (string, error), opts ...fingerprint.Option) (client.Outcome[string], error) {
	r.Helper()
	print, err := fingerprint.Message(req, opts...)
	if err != nil {
		r.Fatal(err)
	}
	call := client.Call{Key: key, Method: "m", Fingerprints: []onced.Fingerprint{print}}
	return client.Do(r.Context(), c, call, func(context.Context, *client.Claim) (string, error) {
		r.runs.Add(1)
		return handler(req)
	})
}

// paid is the handler of most of these tests.
func paid(proto.Message) (string, error) { return "paid", nil }

// stored returns how many operations the store knows.
func (r *rig) stored() int {
	r.Helper()
	page, err := r.store.ScanIdentity(r.Context(), nil, nil, 100)
	if err != nil {
		r.Fatal(err)
	}
	return len(page.Views)
}

// R10: marshalling one message gives other bytes each time. Its fingerprint is the
// same.
func TestR10_OneMessageManyEncodings(t *testing.T) {
	inBubble(t, func(r *rig) {
		req, err := structpb.NewStruct(map[string]any{
			"account": "acme", "amount": 12.5, "lines": []any{"a", nil, true}, "to": map[string]any{"x": 1, "y": 2, "z": 3}, "note": "é",
		})
		if err != nil {
			t.Fatal(err)
		}
		encodings, replays := map[string]bool{}, 0
		for range 200 {
			wire, err := proto.Marshal(req)
			if err != nil {
				t.Fatal(err)
			}
			encodings[string(wire)] = true
			got := &structpb.Struct{}
			if err := proto.Unmarshal(wire, got); err != nil {
				t.Fatal(err)
			}
			out, err := r.guarded(r.Client, "k", got, paid)
			if err != nil || out.Value != "paid" {
				t.Fatalf("got %+v, %v", out, err)
			}
			if out.Replayed {
				replays++
			}
		}
		if len(encodings) < 2 {
			t.Errorf("%d encodings: this shows nothing", len(encodings))
		}
		if replays != 199 {
			t.Errorf("%d replays, want 199", replays)
		}
		r.ran(1)
	})
}

// release is what one release of a backend knows of its requests.
type release struct{ protoreflect.MessageDescriptor }

// releaseWith builds a release that knows an account, an amount, and further fields.
func releaseWith(t *testing.T, further ...*descriptorpb.FieldDescriptorProto) release {
	t.Helper()
	m := &descriptorpb.DescriptorProto{Name: proto.String("Pay"), Field: append([]*descriptorpb.FieldDescriptorProto{
		field("account", 1, descriptorpb.FieldDescriptorProto_TYPE_STRING),
		field("amount", 2, descriptorpb.FieldDescriptorProto_TYPE_INT64),
	}, further...)}
	for _, f := range further {
		if f.GetProto3Optional() {
			f.OneofIndex = proto.Int32(int32(len(m.OneofDecl)))
			m.OneofDecl = append(m.OneofDecl, &descriptorpb.OneofDescriptorProto{Name: proto.String("_" + f.GetName())})
		}
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("pay.proto"), Package: proto.String("shop.v1"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{m},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return release{file.Messages().Get(0)}
}

func field(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
	return &descriptorpb.FieldDescriptorProto{
		Name: proto.String(name), Number: proto.Int32(number), Type: kind.Enum(),
		Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
	}
}

// noted is a later release: it knows optional fields, of all kinds, that the first one
// does not.
func noted(t *testing.T) release {
	t.Helper()
	note, tags := field("note", 3, descriptorpb.FieldDescriptorProto_TYPE_STRING), field("tags", 4, descriptorpb.FieldDescriptorProto_TYPE_STRING)
	note.Proto3Optional = proto.Bool(true)
	tags.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	former := field("former", 5, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE)
	former.TypeName = proto.String(".shop.v1.Pay")
	return releaseWith(t, note, tags, former, field("priority", 6, descriptorpb.FieldDescriptorProto_TYPE_SINT32))
}

// with makes a request of the account acme, with further fields.
func (v release) with(fields map[string]any) *dynamicpb.Message {
	m := dynamicpb.NewMessage(v)
	m.Set(v.Fields().ByName("account"), protoreflect.ValueOfString("acme"))
	m.Set(v.Fields().ByName("amount"), protoreflect.ValueOfInt64(9007199254740993))
	for name, value := range fields {
		m.Set(v.Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOf(value))
	}
	return m
}

// receives is a request as this release decodes what another one has sent.
func (v release) receives(t *testing.T, sent proto.Message) *dynamicpb.Message {
	t.Helper()
	wire, err := proto.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(v)
	if err := proto.Unmarshal(wire, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// R10: a deploy between two tries that learns optional fields which the request does
// not carry changes nothing, in either direction.
func TestR10_DeployBetweenTries(t *testing.T) {
	before, after := releaseWith(t), noted(t)
	for name, tries := range map[string][2]release{"deploy": {before, after}, "roll back": {after, before}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				for i, v := range tries {
					out, err := r.guarded(r.newClient(), "k", v.receives(t, before.with(nil)), paid)
					if err != nil || out.Value != "paid" || out.Replayed != (i == 1) {
						t.Errorf("try %d: %+v, %v", i+1, out, err)
					}
				}
				r.ran(1)
			})
		})
	}
}

// R10: what a request carries beyond what the backend knows counts. When a deploy
// learns it between two tries, the retry is refused and does not run; a backend
// whose identity is what it names does not meet that.
func TestR10_UnknownField(t *testing.T) {
	before, after := releaseWith(t), noted(t)
	sent, other := after.with(map[string]any{"note": "a"}), after.with(map[string]any{"note": "b"})
	inBubble(t, func(r *rig) {
		for i := range 2 {
			if out, err := r.guarded(r.newClient(), "k", before.receives(t, sent), paid); err != nil || out.Replayed != (i == 1) {
				t.Errorf("try %d: %+v, %v", i+1, out, err)
			}
		}
		for name, req := range map[string]proto.Message{
			"another value": before.receives(t, other), "without it": before.receives(t, before.with(nil)), "after the deploy": after.receives(t, sent),
		} {
			out, err := r.guarded(r.newClient(), "k", req, paid)
			if m := as[*client.Mismatch](t, err); m.Reason != onced.RefusedFingerprint || out.Value != "" {
				t.Errorf("%s: %+v, %v", name, out, err)
			}
		}
		r.ran(1)
		identity := fingerprint.Identity("account", "amount")
		for i, v := range []release{before, after} {
			if out, err := r.guarded(r.newClient(), "named", v.receives(t, sent), paid, identity); err != nil || out.Replayed != (i == 1) {
				t.Errorf("by named fields, try %d: %+v, %v", i+1, out, err)
			}
		}
		r.ran(2)
	})
}

// R10: a record of a release with an older scheme is compared under that scheme if the
// caller sends it too. If not, nothing says that the arguments are others, and nothing
// runs, in whatever state the operation is.
func TestR10_OlderScheme(t *testing.T) {
	inBubble(t, func(r *rig) {
		request := releaseWith(t).with(nil)
		print, err := fingerprint.Message(request)
		if err != nil {
			t.Fatal(err)
		}
		older, other := onced.Fingerprint{Scheme: "pb0", Digest: print.Digest}, onced.Fingerprint{Scheme: "pb0", Digest: fingerprint.Raw(nil).Digest}
		do := func(key string, prints ...onced.Fingerprint) (client.Outcome[string], error) {
			return client.Do(r.Context(), r.Client, client.Call{Key: key, Method: "m", Fingerprints: prints}, r.once("again"), client.NoWait())
		}
		bound := func(key string) *rival {
			return r.rival(key, func(req *oncedv1.ClaimRequest) { req.Fingerprints = []string{older.String()} }).got(oncedv1.Outcome_OUTCOME_GRANTED)
		}
		for name, settle := range map[string]func(*rival) error{
			"running":   func(*rival) error { return nil },
			"completed": func(v *rival) error { return v.complete("R") },
			"unknown":   func(v *rival) error { return v.fail(oncedv1.Disposition_DISPOSITION_UNKNOWN) },
			"released":  func(v *rival) error { return v.fail(oncedv1.Disposition_DISPOSITION_NOT_EXECUTED) },
		} {
			if err := settle(bound(name)); err != nil {
				t.Fatal(err)
			}
			_, err := do(name, print)
			if m := as[*client.Mismatch](t, err); m.Reason != onced.RefusedFingerprintScheme {
				t.Errorf("%s: refused for %s", name, m.Reason)
			}
			says(t, err, "scheme pb0", "nothing was executed")
			_, err = do(name, print, other)
			if m := as[*client.Mismatch](t, err); m.Reason != onced.RefusedFingerprint {
				t.Errorf("%s: other arguments are refused for %s", name, m.Reason)
			}
		}
		r.ran(0)
		if out, err := do("completed", print, older); err != nil || out.Value != "R" || !out.Replayed {
			t.Errorf("under both schemes: %+v, %v", out, err)
		}
		_, err = do("running", older, print)
		as[*client.InProgress](t, err)
		if out, err := do("released", print, older); err != nil || out.Replayed {
			t.Errorf("what was released: %+v, %v", out, err)
		}
		r.ran(1)
	})
}

// R15: the handler changes the request that it was given. What it reports is filed
// under the operation that was claimed, and the caller's next try finds it there.
func TestR15_HandlerChangesItsRequest(t *testing.T) {
	v := releaseWith(t, field("currency", 3, descriptorpb.FieldDescriptorProto_TYPE_STRING), field("processed", 4, descriptorpb.FieldDescriptorProto_TYPE_BOOL))
	for name, end := range map[string]struct {
		err   error
		check func(t *testing.T, out client.Outcome[string], err error)
	}{
		"completed": {nil, func(t *testing.T, out client.Outcome[string], err error) {
			if err != nil || out.Value != "paid" || !out.Replayed {
				t.Errorf("the second call got %+v, %v, want the replay", out, err)
			}
		}},
		"failed for good": {client.Final(errors.New("declined")), func(t *testing.T, _ client.Outcome[string], err error) { as[*client.Failed](t, err) }},
		"unknown":         {errors.New("a later step failed"), func(t *testing.T, _ client.Outcome[string], err error) { as[*client.Unresolved](t, err) }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				sent := v.with(map[string]any{"currency": "eur"})
				handler := func(req proto.Message) (string, error) {
					m := req.ProtoReflect()
					m.Set(v.Fields().ByName("currency"), protoreflect.ValueOfString("EUR"))
					m.Set(v.Fields().ByName("processed"), protoreflect.ValueOfBool(true))
					return "paid", end.err
				}
				first := v.receives(t, sent)
				if _, err := r.guarded(r.Client, "k", first, handler); !errors.Is(err, end.err) || proto.Equal(first, sent) {
					t.Errorf("got %v; the request is %v", err, first)
				}
				out, err := r.guarded(r.newClient(), "k", v.receives(t, sent), handler)
				end.check(t, out, err)
				if n := r.stored(); n != 1 {
					t.Errorf("%d records, want 1", n)
				}
				r.ran(1)
			})
		})
	}
}

// agentRun is one run of an agent: the model, two charges, and the model again.
type agentRun struct {
	id     string
	parent string // the run that this one is a retry of, if the framework says so
}

// rootOf is the part of a run's identity that survives a retry.
func (a agentRun) rootOf() string {
	if a.parent != "" {
		return a.parent
	}
	return a.id
}

// R35: the tools of a run have returned, the next model call fails, and the framework
// retries the whole run. Keys that are derived from what survives the retry find what
// was done. Those that are derived from what each retry makes anew do not, and a test
// against oncetest shows it.
func TestR35_WholeRunRetried(t *testing.T) {
	for name, c := range map[string]struct {
		runs    []agentRun
		keyOf   func(agentRun) string
		effects []string
		twins   int
	}{
		"run id kept":          {[]agentRun{{id: "run-1"}, {id: "run-1"}, {id: "run-1"}}, func(a agentRun) string { return a.id }, []string{"500", "700"}, 0},
		"new run id, a parent": {[]agentRun{{id: "run-1"}, {"run-2", "run-1"}, {"run-3", "run-1"}}, agentRun.rootOf, []string{"500", "700"}, 0},
		"from the try, wrong":  {[]agentRun{{id: "run-1"}, {"run-2", "run-1"}}, func(a agentRun) string { return a.id }, []string{"500", "700", "500", "700"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := oncetest.New(t)
				var ledger []string
				replays := 0
				charge := func(c *client.Client, key, step, cents string) {
					t.Helper()
					print, err := fingerprint.JSON([]byte(`{"card":"c-1","cents":` + cents + `}`))
					if err != nil {
						t.Fatal(err)
					}
					key, err = client.Child(key, step)
					if err != nil {
						t.Fatal(err)
					}
					out, err := client.Do(t.Context(), c, client.Call{Key: key, Method: "charge", Fingerprints: []onced.Fingerprint{print}},
						func(context.Context, *client.Claim) (string, error) {
							ledger = append(ledger, cents)
							return "receipt of " + cents, nil
						})
					if err != nil || out.Value != "receipt of "+cents {
						t.Errorf("step %s got %+v, %v", step, out, err)
					}
					if out.Replayed {
						replays++
					}
				}
				for _, run := range c.runs { // each a process of its own; the model's last call fails in all but the last
					key, err := client.PerRequest("acme", c.keyOf(run), "charge")
					if err != nil {
						t.Fatal(err)
					}
					worker := s.Client()
					charge(worker, key, "step-2", "500")
					charge(worker, key, "step-4", "700")
				}
				t.Logf("executions=%d replays=%d", len(ledger), replays)
				if !slices.Equal(ledger, c.effects) || replays != 2*len(c.runs)-len(c.effects) {
					t.Errorf("effects %q and %d replays, want %q and the rest of %d charges", ledger, replays, c.effects, 2*len(c.runs))
				}
				twins := s.Twins()
				if len(twins) != c.twins {
					t.Errorf("%d acts under several keys, want %d: %+v", len(twins), c.twins, twins)
				}
				for _, twin := range twins {
					if twin.Method != "charge" || len(twin.Keys) != len(c.runs) {
						t.Errorf("a twin is %+v", twin)
					}
				}
			})
		})
	}
}

// R52: a document that two parsers read in two ways has no fingerprint. A caller that
// does not look at the error cannot claim with what it has.
func TestR52_NoFingerprintNoClaim(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, doc := range []string{
			`{"amount":5,"amount":500}`, `{"amount":5,"\u0061mount":500}`, `{"a":1} x`, `{"a":1}{"a":2}`, ``, "\ufeff{}",
		} {
			print, err := fingerprint.JSON([]byte(doc))
			if err == nil || print != (onced.Fingerprint{}) {
				t.Errorf("%q has the fingerprint %v, %v", doc, print, err)
			}
			call := client.Call{Key: "k", Method: "m", Fingerprints: []onced.Fingerprint{print}}
			if _, err := client.Do(r.Context(), r.Client, call, r.once("R")); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%q: claimed with %v", doc, err)
			}
			if _, err := client.PerArguments("acme", "request-1", "m", print); err == nil {
				t.Errorf("%q: a key was derived from no arguments", doc)
			}
		}
		r.ran(0)
		if n := r.stored(); n != 0 {
			t.Errorf("%d records, want none", n)
		}
		for i, doc := range []string{`{"amount":5}`, `{"amount":5,"Amount":500}`} {
			print, err := fingerprint.JSON([]byte(doc))
			if err != nil {
				t.Fatal(err)
			}
			call := client.Call{Key: "k", Method: "m", Fingerprints: []onced.Fingerprint{print}}
			_, err = client.Do(r.Context(), r.Client, call, r.once("R"))
			if mismatch := errors.As(err, new(*client.Mismatch)); mismatch != (i == 1) {
				t.Errorf("%s: claimed with %v", doc, err)
			}
		}
		r.ran(1)
	})
}
