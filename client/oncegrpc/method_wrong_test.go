package oncegrpc

import (
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// sendTo calls a method of another service of the tests.
func (r *rig) sendTo(service, method string, req *dynamicpb.Message, pairs ...string) answer {
	ctx := metadata.NewOutgoingContext(r.t.Context(), metadata.Pairs(pairs...))
	return invokeOn(ctx, r.conn, "oncegrpc.test.v1."+service+"/"+method, req)
}

// wrongMethod is a method whose option is impossible, and what people are told of it.
type wrongMethod struct {
	toolMethod
	says string
}

func wrong(name, says string, option *oncedv1.Guard) wrongMethod {
	return wrongMethod{toolMethod{name: name, option: option}, says}
}

func lease(d time.Duration) *oncedv1.Guard { return &oncedv1.Guard{Lease: durationpb.New(d)} }
func key(path string) *oncedv1.Guard       { return &oncedv1.Guard{KeyField: path} }

func notExecuted(names ...string) *oncedv1.Guard {
	return &oncedv1.Guard{NotExecutedCodes: names}
}

// wrongMethods take an Odd:
//
//	message Odd { Request request = 1; repeated string ids = 2; repeated Header headers = 3; bool flag = 4; int64 number = 5; Header header = 6; repeated bool flags = 7; }
var wrongMethods = []wrongMethod{
	wrong("KeyNumber", "key_field", key("number")),
	wrong("KeyRepeated", "key_field", key("ids")),
	wrong("KeyMessage", "key_field", key("header")),
	wrong("KeyUnknown", "key_field", key("nothing")),
	wrong("KeyInUnknown", "key_field", key("nothing.request_id")),
	wrong("KeyUnknownInside", "key_field", key("header.nothing")),
	wrong("KeyThroughRepeated", "key_field", key("headers.request_id")),
	wrong("KeyThroughString", "key_field", key("ids.request_id")),
	wrong("KeyDots", "key_field", key("header..request_id")),
	wrong("KeyDotAtEnd", "key_field", key("header.request_id.")),
	wrong("KeyInJSON", "key_field", key("header.requestId")),
	wrong("KeySpace", "key_field", key(" ")),
	wrong("ReplayedUnknown", "replayed_field", &oncedv1.Guard{ReplayedField: "nothing"}),
	wrong("ReplayedNumber", "replayed_field", &oncedv1.Guard{ReplayedField: "number"}),
	wrong("ReplayedRepeated", "replayed_field", &oncedv1.Guard{ReplayedField: "flags"}),
	wrong("ReplayedNested", "replayed_field", &oncedv1.Guard{ReplayedField: "request.flag"}),
	wrong("BothLists", "exclude each other", &oncedv1.Guard{IdentityFields: []string{"number"}, IgnoredFields: []string{"flag"}}),
	wrong("KeyIsIdentity", "identity_fields", &oncedv1.Guard{KeyField: "header.request_id", IdentityFields: []string{"number", "header.request_id"}}),
	wrong("KeyInIdentity", "identity_fields", &oncedv1.Guard{KeyField: "header.request_id", IdentityFields: []string{"header"}}),
	wrong("IdentityUnknown", `"nothing"`, &oncedv1.Guard{IdentityFields: []string{"nothing"}}),
	wrong("IdentityEmpty", "", &oncedv1.Guard{IdentityFields: []string{""}}),
	wrong("IdentityThroughRepeated", "repeated", &oncedv1.Guard{IdentityFields: []string{"headers.request_id"}}),
	wrong("IgnoredUnknown", `"nothing"`, &oncedv1.Guard{IgnoredFields: []string{"nothing"}}),
	wrong("IgnoredThroughRepeated", "repeated", &oncedv1.Guard{IgnoredFields: []string{"headers.request_id"}}),
	wrong("IgnoredUnknownWithKey", `"nothing"`, &oncedv1.Guard{KeyField: "header.request_id", IgnoredFields: []string{"nothing"}}),
	wrong("CodeOK", "OK", notExecuted("OK")),
	wrong("CodeUnknown", "UNKNOWN", notExecuted("NOT_FOUND", "UNKNOWN")),
	wrong("CodeCancelled", "CANCELLED", notExecuted("CANCELLED")),
	wrong("CodeDeadline", "DEADLINE_EXCEEDED", notExecuted("DEADLINE_EXCEEDED")),
	wrong("CodeMisspelt", `"CANCELED"`, notExecuted("CANCELED")),
	wrong("CodeInGo", `"NotFound"`, notExecuted("NotFound")),
	wrong("CodeNumber", `"5"`, notExecuted("5")),
	wrong("CodeEmpty", `""`, notExecuted("")),
	wrong("CodeLowerCase", `"not_found"`, notExecuted("INVALID_ARGUMENT", "not_found")),
	wrong("LeaseZero", "lease", lease(0)),
	wrong("LeaseNegative", "lease", lease(-time.Second)),
	wrong("LeaseShort", "lease", lease(time.Second-1)),
	wrong("LeaseLong", "lease", lease(24*time.Hour+1)),
	wrong("LeaseEndless", "lease", &oncedv1.Guard{Lease: &durationpb.Duration{Seconds: 1 << 60}}),
	wrong("LeaseNoDuration", "lease", &oncedv1.Guard{Lease: &durationpb.Duration{Seconds: 30, Nanos: -1}}),
	wrong("ModeUnknown", "mode 99", &oncedv1.Guard{Mode: 99}),
	wrong("ModeNegative", "mode -1", &oncedv1.Guard{Mode: -1}),
	wrong("NameSpace", "method", &oncedv1.Guard{Method: " a"}),
	wrong("NameControl", "method", &oncedv1.Guard{Method: "a\nb"}),
	wrong("NameLong", "256", &oncedv1.Guard{Method: strings.Repeat("m", 257)}),
	wrong("Long"+strings.Repeat("g", 250), "256", nil),

	// Whatever else the option says, or is said of the method.
	wrong("OptionalAndWrong", "lease", &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OPTIONAL, Lease: durationpb.New(0)}),
	wrong("OffAndWrong", "lease", &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OFF, Lease: durationpb.New(0)}),
	{toolMethod{name: "ReadAndWrong", level: readOnly, option: lease(0)}, "lease"},
	{toolMethod{name: "ReadInUnknownMode", level: readOnly, option: &oncedv1.Guard{Mode: 99}}, "mode 99"},
}

func (m wrongMethod) full() string { return "oncegrpc.test.v1.Wrong/" + m.name }

// registerWrong makes the service known whose methods wrongMethods are.
var registerWrong = sync.OnceFunc(func() {
	odd := messageDesc("Odd", "request Request", "ids string", "headers Header", "flag bool", "number int64", "header Header", "flags bool")
	for _, i := range []int{1, 2, 6} {
		odd.Field[i].Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	}
	registerServiceOf("Wrong", methodsOf(wrongMethods), odd, func(toolMethod) string { return "Odd" })
})

func methodsOf(list []wrongMethod) (methods []toolMethod) {
	for _, m := range list {
		methods = append(methods, m.toolMethod)
	}
	return methods
}

func newWrongRig(t *testing.T, opts ...Option) *rig {
	t.Helper()
	registerWrong()
	return newRigServing(t, oncetest.New(t), nil, func(r *rig) {
		r.server.RegisterService(r.service("Wrong", methodsOf(wrongMethods)), r)
	}, opts...)
}

// A guard that is told something impossible refuses every call of the method, with a
// key and without.
func TestImpossibleOptionsRefuseEveryCall(t *testing.T) {
	r := newWrongRig(t)
	for _, m := range wrongMethods {
		t.Run(m.name[:min(len(m.name), 40)], func(t *testing.T) {
			for _, pairs := range [][]string{{MetadataKey, "k"}, {}, {MetadataKeyBin, "\xff"}} {
				a := r.sendTo("Wrong", m.name, request(), pairs...)
				a.wantRefused(t, codes.Internal, reasonMisconfigured)
				if text := status.Convert(a.err).Message(); !strings.Contains(text, m.says) || !strings.Contains(text, "oncegrpc.test.v1.Wrong/"+m.name) {
					t.Errorf("it says %q, and not %q", text, m.says)
				}
			}
		})
	}
	r.wantNothing()
}

// Check says it of each of them, in a sentence that names the method.
func TestCheckNamesImpossibleOptions(t *testing.T) {
	r := newWrongRig(t)
	_, err := r.guard.Check(r.server)
	if err == nil {
		t.Fatal("Check finds nothing")
	}
	for _, m := range wrongMethods {
		found := false
		for line := range strings.SplitSeq(err.Error(), "\n") {
			found = found || strings.Contains(line, m.full()+":") && strings.Contains(line, m.says)
		}
		if !found {
			t.Errorf("Check says nothing of %s, or not %q", m.full(), m.says)
		}
	}
	for _, m := range toolMethods {
		if m.name != "Feed" && strings.Contains(err.Error(), toolsService+"/"+m.name+":") {
			t.Errorf("Check says something of %s", m.name)
		}
	}
}

// A client that knows the descriptor sends nothing.
func TestClientsRefuseImpossibleOptions(t *testing.T) {
	registerWrong()
	intercept := UnaryClientInterceptor()
	for _, m := range wrongMethods {
		if m.option.GetMode() == oncedv1.Guard_MODE_OFF || m.level == readOnly {
			continue // there is no key to send
		}
		err := intercept(t.Context(), "/"+m.full(), request(), nil, nil, neverInvoked(t))
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "nothing was sent") || !strings.Contains(err.Error(), m.full()) {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// What looks odd and is possible.
func TestOddOptions(t *testing.T) {
	odd := []toolMethod{
		{name: "IgnoresItsKey", option: &oncedv1.Guard{KeyField: "request_id", IgnoredFields: []string{"request_id", "trace"}}},
		{name: "IgnoresAroundItsKey", option: &oncedv1.Guard{KeyField: "header.request_id", IgnoredFields: []string{"header"}}},
		{name: "IgnoresTwice", option: &oncedv1.Guard{IgnoredFields: []string{"trace", "trace"}}},
		{name: "KeyBesideIdentity", option: &oncedv1.Guard{KeyField: "request_id", IdentityFields: []string{"account"}}},
		{name: "ShortestLease", option: lease(time.Second)},
		{name: "LongestLease", option: lease(24 * time.Hour)},
		{name: "AllModes", option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_REQUIRED}},
	}
	registerService("OddButPossible", odd)
	r := newRigServing(t, oncetest.New(t), nil, func(r *rig) { r.server.RegisterService(r.service("OddButPossible", odd), r) })
	for _, m := range odd {
		r.sendTo("OddButPossible", m.name, request("account", "a"), MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
		r.sendTo("OddButPossible", m.name, request("account", "a"), MetadataKey, "k").wantOutcome(t, OutcomeReplayed)
		if field := m.option.GetKeyField(); field != "" {
			r.sendTo("OddButPossible", m.name, request("account", "a", field, "k")).wantOutcome(t, OutcomeReplayed)
		}
	}
	r.wantRuns(int64(len(odd)))
}
