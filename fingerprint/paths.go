package fingerprint

import (
	"errors"
	"fmt"
	"strings"
)

// Option chooses what of the arguments makes the fingerprint. Without one, all
// of them do. An Option may be used in any number of calls at once.
type Option func(*choice)

// Identity makes the fingerprint of the named members or fields alone: whatever
// else the arguments hold may differ between the tries of one operation. A path
// is a name, or names with dots between them for what lies inside an object or a
// message: "order", "order.id". Several Identity options add up.
//
// A named member that is absent is not refused, as long as another one is there: a
// name that is misspelt, here or by the sender, leaves its value out without a word,
// and calls that differ in it alone are taken for one. [JSON] refuses a document with
// none of the members. [Message] refuses a name that the type does not have, but not a
// message in which none of the fields is set, because a zero is not told from what is
// absent: all such messages are equal. Name what every call has.
//
// The paths are not in the fingerprint: {"a":1} under Identity("a", "b") has that of
// {"a":1,"b":2} under Identity("a"). Give the method another name when its paths
// change, or accept that calls from before and after are compared all the same.
func Identity(paths ...string) Option {
	return func(c *choice) { c.add(onlyNamed, paths) }
}

// Ignore makes the fingerprint of all but the named members or fields, such as a
// trace id that changes with each try. Paths are written as for [Identity]. A path
// that the arguments do not have changes nothing, nor does one that leads into a
// value which is no object, such as null. Several Ignore options add up.
func Ignore(paths ...string) Option {
	return func(c *choice) { c.add(allButNamed, paths) }
}

// choiceMode says what the paths of a choice stand for.
type choiceMode int

const (
	everything choiceMode = iota
	onlyNamed
	allButNamed
)

// choice is what the options of one call add up to.
type choice struct {
	mode choiceMode
	root *node // nil: everything
	err  error // the first thing that is wrong with the options
}

// node is one step of the named paths. The whole value below a leaf is named.
type node struct {
	path     string // as it was written up to here
	leaf     bool
	children map[string]*node
}

var (
	errBothOptions = errors.New("fingerprint: Identity and Ignore exclude each other; give one of them")
	errNoIdentity  = errors.New("fingerprint: Identity without a path would make all arguments equal; name at least one")
	errNilOption   = errors.New("fingerprint: an option is nil; leave it out")
)

// choose adds up the options of one call.
func choose(opts []Option) (choice, error) {
	var c choice
	for _, opt := range opts {
		if opt == nil {
			return choice{}, errNilOption
		}
		opt(&c)
	}
	return c, c.err
}

func (c *choice) add(mode choiceMode, paths []string) {
	switch {
	case c.err != nil:
		return
	case c.mode != everything && c.mode != mode:
		c.err = errBothOptions
		return
	case mode == onlyNamed && len(paths) == 0:
		c.err = errNoIdentity
		return
	}
	c.mode = mode
	for _, path := range paths {
		if c.err = c.addPath(path); c.err != nil {
			return
		}
	}
}

func (c *choice) addPath(path string) error {
	if c.root == nil {
		c.root = &node{}
	}
	at := c.root
	for name := range strings.SplitSeq(path, ".") {
		if name == "" {
			return fmt.Errorf("fingerprint: the path %s has an empty name; write names with single dots between them, as in a.b", quote(path))
		}
		child := at.children[name]
		if child == nil {
			child = &node{path: strings.TrimPrefix(at.path+"."+name, ".")}
			if at.children == nil {
				at.children = map[string]*node{}
			}
			at.children[name] = child
		}
		at = child
	}
	at.leaf = true
	return nil
}

// step says what becomes of a value that stands under a node's child: whether it
// is in, and which node decides about what is inside it (nil: all of it is as it
// is). A value with a node must be an object or a message.
func (m choiceMode) step(child *node) (in bool, inside *node) {
	switch {
	case child == nil:
		return m == allButNamed, nil
	case child.leaf:
		return m == onlyNamed, nil
	}
	return true, child
}

// quote returns a name for an error: quoted, and cut where it is too long to read.
func quote[T string | []byte](name T) string {
	const most = 64
	if len(name) > most {
		return fmt.Sprintf("%.*q…", most, string(name))
	}
	return fmt.Sprintf("%q", string(name))
}
