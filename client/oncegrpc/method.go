package oncegrpc

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	rpccode "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced"
	"github.com/onced/onced/fingerprint"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// infrastructure is gRPC's own services: they change nothing, and their .proto files do
// not say so.
var infrastructure = []string{
	"grpc.channelz.v1.Channelz",
	"grpc.health.v1.Health",
	"grpc.reflection.v1.ServerReflection",
	"grpc.reflection.v1alpha.ServerReflection",
}

// method is what the descriptors say about a method: how its calls are guarded, on
// either side.
type method struct {
	name        string // in its operations
	stance      stance
	lease       time.Duration
	keyField    []string // path of field names; nil when there is none
	replayed    protoreflect.Name
	arguments   []fingerprint.Option
	notExecuted []codes.Code
	safeToRerun bool
	output      protoreflect.FullName // "" when it is not known
	wrong       error                 // what is impossible about its option
}

// methods reads methods from the descriptors linked into the program, each once. It is
// safe for concurrent use; the zero value is ready.
type methods struct{ known sync.Map }

// of returns a method by its full name, with or without a slash before it.
func (ms *methods) of(full string) *method {
	full = strings.TrimPrefix(full, "/")
	if m, ok := ms.known.Load(full); ok {
		return m.(*method)
	}
	m := readMethod(full)
	if m.output != "" {
		ms.known.Store(full, m) // unknown ones may be of any name, and without bound
	}
	return m
}

// readMethod reads a method. One that has no descriptor here is guarded.
func readMethod(full string) *method {
	m := &method{name: full}
	service, name, _ := strings.Cut(full, "/")
	if slices.Contains(infrastructure, service) {
		m.stance = harmless
		return m
	}
	d, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	sd, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return m
	}
	md := sd.Methods().ByName(protoreflect.Name(name))
	if md == nil {
		return m
	}
	m.output = md.Output().FullName()
	options, _ := md.Options().(*descriptorpb.MethodOptions)
	option, _ := proto.GetExtension(options, oncedv1.E_Guard).(*oncedv1.Guard)
	m.stance = stanceOf(option.GetMode(), options.GetIdempotencyLevel())
	if err := m.read(md, option); err != nil {
		m.wrong = fmt.Errorf("the option (onced.v1.guard) of %s: %w", full, err)
	}
	return m
}

func stanceOf(mode oncedv1.Guard_Mode, level descriptorpb.MethodOptions_IdempotencyLevel) stance {
	readOnly := level == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
	switch {
	case mode == oncedv1.Guard_MODE_OPTIONAL:
		return optional
	case readOnly && mode != oncedv1.Guard_MODE_REQUIRED:
		return harmless
	case mode == oncedv1.Guard_MODE_OFF:
		return off
	}
	return guarded
}

// read takes over the option, and refuses what is impossible.
func (m *method) read(md protoreflect.MethodDescriptor, option *oncedv1.Guard) (err error) {
	if _, known := oncedv1.Guard_Mode_name[int32(option.GetMode())]; !known {
		return fmt.Errorf("mode %d is not known to this build; use a newer one", option.GetMode())
	}
	if option.GetMethod() != "" {
		m.name = option.GetMethod()
	}
	if err := onced.ValidateMethod(m.name); err != nil {
		return err
	}
	if m.lease, err = leaseOf(option); err != nil {
		return err
	}
	m.safeToRerun = option.GetSafeToRerun()
	if m.notExecuted, err = codesOf(option.GetNotExecutedCodes()); err != nil {
		return err
	}
	if m.keyField, err = keyFieldOf(md.Input(), option.GetKeyField()); err != nil {
		return err
	}
	if m.replayed, err = replayedFieldOf(md.Output(), option.GetReplayedField()); err != nil {
		return err
	}
	m.arguments, err = argumentsOf(md.Input(), option)
	return err
}

func leaseOf(option *oncedv1.Guard) (time.Duration, error) {
	d := option.GetLease()
	if d == nil {
		return 0, nil
	}
	if lease := d.AsDuration(); d.CheckValid() == nil && lease >= onced.LeastLease && lease <= onced.GreatestLease {
		return lease, nil
	}
	return 0, fmt.Errorf("lease: must be from %v to %v; leave it out for the namespace's default", onced.LeastLease, onced.GreatestLease)
}

// unclassified are codes of errors that nobody has classified: gRPC makes them of
// whatever is no status, and of contexts that end.
var unclassified = []codes.Code{codes.OK, codes.Unknown, codes.Canceled, codes.DeadlineExceeded}

func codesOf(names []string) ([]codes.Code, error) {
	var list []codes.Code
	for _, name := range names {
		value, ok := rpccode.Code_value[name]
		code := codes.Code(value)
		switch {
		case !ok:
			return nil, fmt.Errorf("not_executed_codes: %q is no code; write it as in INVALID_ARGUMENT", name)
		case slices.Contains(unclassified, code):
			return nil, fmt.Errorf("not_executed_codes: %s is also the code of errors that nobody has classified, so it proves nothing; use another code, or mark the error with client.NotExecuted", name)
		}
		list = append(list, code)
	}
	return list, nil
}

func keyFieldOf(input protoreflect.MessageDescriptor, path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	names := strings.Split(path, ".")
	at := input
	for i, name := range names {
		fd := at.Fields().ByName(protoreflect.Name(name))
		last := i == len(names)-1
		switch {
		case fd == nil:
			return nil, fmt.Errorf("key_field: %s has no field %q", at.FullName(), name)
		case last && (fd.Kind() != protoreflect.StringKind || fd.IsList()):
			return nil, fmt.Errorf("key_field: %s must be a string, and not repeated", fd.FullName())
		case last:
		case fd.Message() == nil || fd.IsList() || fd.IsMap():
			return nil, fmt.Errorf("key_field: %s must be a message, and not repeated", fd.FullName())
		}
		at = fd.Message()
	}
	return names, nil
}

func replayedFieldOf(output protoreflect.MessageDescriptor, name string) (protoreflect.Name, error) {
	if name == "" {
		return "", nil
	}
	fd := output.Fields().ByName(protoreflect.Name(name))
	if fd == nil || fd.Kind() != protoreflect.BoolKind || fd.IsList() {
		return "", fmt.Errorf("replayed_field: %s must have a bool field %q, not repeated", output.FullName(), name)
	}
	if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
		return "", fmt.Errorf("replayed_field: %s is in the oneof %q, so setting it would clear the answer; move it out", fd.FullName(), o.Name())
	}
	return fd.Name(), nil
}

// argumentsOf is what of a request without its key makes its fingerprint.
func argumentsOf(input protoreflect.MessageDescriptor, option *oncedv1.Guard) ([]fingerprint.Option, error) {
	identity, ignored, key := option.GetIdentityFields(), option.GetIgnoredFields(), option.GetKeyField()
	var arguments []fingerprint.Option
	switch {
	case len(identity) > 0 && len(ignored) > 0:
		return nil, fmt.Errorf("identity_fields and ignored_fields exclude each other; give one of them")
	case slices.ContainsFunc(identity, func(path string) bool { return key != "" && (path == key || strings.HasPrefix(key, path+".")) }):
		return nil, fmt.Errorf("identity_fields: the field of the key, %q, names the call and is none of its arguments; leave it out", key)
	case len(identity) > 0:
		arguments = append(arguments, fingerprint.Identity(identity...))
	case len(ignored) > 0:
		arguments = append(arguments, fingerprint.Ignore(ignored...))
	}
	_, err := fingerprint.Message(dynamicpb.NewMessage(input), arguments...) // refuses impossible paths of any message
	return arguments, err
}
