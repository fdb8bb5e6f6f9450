package fingerprint_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/big"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// This file is cj1 once more, written from the package comment alone: a parser into
// a tree, big integers, recursion. It is slow and simple, and shares no code with
// the package; tests compare the two.

type (
	refNumber string // as it was written
	refObject []refMember
	refMember struct {
		name  string
		value any
	}
)

// refCJ1 returns the cj1 fingerprint of doc, of a selection if there is one.
func refCJ1(doc []byte, identity, ignore []string) (string, error) {
	v, err := refParse(doc)
	if err != nil {
		return "", err
	}
	if identity != nil && ignore != nil {
		return "", errRef
	}
	if identity != nil || ignore != nil {
		if v, err = refProject(v, identity, ignore); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256([]byte(refText("onced cj1") + refEncode(v)))
	return "cj1:" + hex.EncodeToString(sum[:]), nil
}

func refText(s string) string {
	return string(binary.AppendUvarint(nil, uint64(len(s)))) + s
}

func refEncode(v any) string {
	switch v := v.(type) {
	case nil:
		return "n"
	case bool:
		return map[bool]string{true: "t", false: "f"}[v]
	case string:
		return "s" + refText(v)
	case refNumber:
		return "d" + refText(refNormal(string(v)))
	case []any:
		content := "A"
		for _, e := range v {
			content += refEncode(e)
		}
		sum := sha256.Sum256([]byte(content))
		return "a" + string(sum[:])
	}
	members := map[string]string{}
	var names []string
	for _, m := range v.(refObject) {
		members[m.name] = refEncode(m.value)
		names = append(names, m.name)
	}
	slices.Sort(names)
	content := "O"
	for _, name := range names {
		content += refText(name) + members[name]
	}
	sum := sha256.Sum256([]byte(content))
	return "o" + string(sum[:])
}

// refDecimal takes a number apart: digits without trailing zeros, exponent.
func refDecimal(written string) (digits, exponent *big.Int) {
	mantissa, exp, found := strings.Cut(strings.ToLower(written), "e")
	exponent = new(big.Int)
	if found {
		exponent.SetString(strings.TrimPrefix(exp, "+"), 10)
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits, _ = new(big.Int).SetString(whole+fraction, 10)
	exponent.Sub(exponent, big.NewInt(int64(len(fraction))))
	if digits.Sign() == 0 {
		return digits, new(big.Int)
	}
	ten, one := big.NewInt(10), big.NewInt(1)
	for {
		quotient, rest := new(big.Int).QuoRem(digits, ten, new(big.Int))
		if rest.Sign() != 0 {
			return digits, exponent
		}
		digits = quotient
		exponent.Add(exponent, one)
	}
}

func refNormal(written string) string {
	digits, exponent := refDecimal(written)
	if digits.Sign() == 0 {
		return "0"
	}
	return digits.String() + "e" + exponent.String()
}

// refProject keeps or drops what the paths name.
func refProject(v any, identity, ignore []string) (any, error) {
	paths := identity
	if identity == nil {
		paths = ignore
	}
	top, ok := v.(refObject)
	switch {
	case !ok && identity != nil:
		return nil, errors.New("not an object")
	case !ok:
		return v, nil
	}
	found := false
	kept, err := refKeep(top, paths, "", identity != nil, &found)
	if err == nil && identity != nil && !found {
		err = errors.New("no named member")
	}
	return kept, err
}

func refKeep(o refObject, paths []string, prefix string, only bool, found *bool) (refObject, error) {
	kept := refObject{}
	for _, m := range o {
		path := prefix + m.name
		named := !strings.Contains(m.name, ".") && slices.Contains(paths, path)
		on := !strings.Contains(m.name, ".") &&
			slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, path+".") })
		switch {
		case named:
			*found = true
			if only {
				kept = append(kept, m)
			}
		case on:
			inner, ok := m.value.(refObject)
			switch {
			case !ok && only:
				return nil, errors.New("path through a value that is no object")
			case !ok:
				kept = append(kept, m)
				continue
			}
			inner, err := refKeep(inner, paths, path+".", only, found)
			if err != nil {
				return nil, err
			}
			if !only || len(inner) > 0 {
				kept = append(kept, refMember{m.name, inner})
			}
		case !only:
			kept = append(kept, m)
		}
	}
	return kept, nil
}

// refParser reads RFC 8259 and nothing else.
type refParser struct {
	in []byte
	at int
}

var errRef = errors.New("refused")

func refParse(doc []byte) (v any, err error) {
	if !utf8.Valid(doc) {
		return nil, errRef
	}
	p := &refParser{in: append(slices.Clip(doc), 0)}
	if v, err = p.value(0); err != nil {
		return nil, err
	}
	if p.space(); p.at != len(doc) {
		return nil, errRef
	}
	return v, nil
}

func (p *refParser) space() {
	for strings.IndexByte(" \t\r\n", p.in[p.at]) >= 0 {
		p.at++
	}
}

// eat takes s if it comes next, behind white space.
func (p *refParser) eat(s string) bool {
	p.space()
	if !strings.HasPrefix(string(p.in[p.at:min(len(p.in), p.at+len(s))]), s) {
		return false
	}
	p.at += len(s)
	return true
}

func (p *refParser) value(depth int) (any, error) {
	switch {
	case p.eat("null"):
		return nil, nil
	case p.eat("true"):
		return true, nil
	case p.eat("false"):
		return false, nil
	case p.eat(`"`):
		return p.text()
	case p.eat("["):
		return p.array(depth + 1)
	case p.eat("{"):
		return p.object(depth + 1)
	}
	return p.number()
}

func (p *refParser) array(depth int) (any, error) {
	list := []any{}
	if depth > 1000 {
		return nil, errRef
	}
	if p.eat("]") {
		return list, nil
	}
	for {
		v, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if p.eat("]") {
			return list, nil
		}
		if !p.eat(",") {
			return nil, errRef
		}
	}
}

func (p *refParser) object(depth int) (any, error) {
	object, seen := refObject{}, map[string]bool{}
	if depth > 1000 {
		return nil, errRef
	}
	if p.eat("}") {
		return object, nil
	}
	for {
		if !p.eat(`"`) {
			return nil, errRef
		}
		name, err := p.text()
		if err != nil || seen[name] || !p.eat(":") {
			return nil, errRef
		}
		seen[name] = true
		v, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		object = append(object, refMember{name, v})
		if p.eat("}") {
			return object, nil
		}
		if !p.eat(",") {
			return nil, errRef
		}
	}
}

func (p *refParser) text() (string, error) {
	var b strings.Builder
	for p.at < len(p.in)-1 {
		c := p.in[p.at]
		p.at++
		switch {
		case c == '"':
			return b.String(), nil
		case c < ' ':
			return "", errRef
		case c != '\\':
			b.WriteByte(c)
			continue
		}
		c = p.in[p.at]
		p.at++
		if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
			b.WriteByte("\"\\/\b\f\n\r\t"[i])
			continue
		}
		r, ok := p.hex()
		if c != 'u' || !ok {
			return "", errRef
		}
		if utf16.IsSurrogate(r) {
			if !strings.HasPrefix(string(p.in[p.at:]), `\u`) {
				return "", errRef
			}
			p.at += 2
			low, ok := p.hex()
			if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
				return "", errRef
			}
		}
		b.WriteRune(r)
	}
	return "", errRef
}

func (p *refParser) hex() (rune, bool) {
	if p.at+4 > len(p.in) {
		return 0, false
	}
	b, err := hex.DecodeString(string(p.in[p.at : p.at+4]))
	if err != nil {
		return 0, false
	}
	p.at += 4
	return rune(b[0])<<8 | rune(b[1]), true
}

func (p *refParser) number() (any, error) {
	p.space()
	start := p.at
	digits := func() bool {
		from := p.at
		for p.in[p.at] >= '0' && p.in[p.at] <= '9' {
			p.at++
		}
		return p.at > from
	}
	if p.in[p.at] == '-' {
		p.at++
	}
	if p.in[p.at] == '0' {
		p.at++
	} else if !digits() {
		return nil, errRef
	}
	if p.in[p.at] == '.' {
		p.at++
		if !digits() {
			return nil, errRef
		}
	}
	if p.in[p.at] == 'e' || p.in[p.at] == 'E' {
		p.at++
		if p.in[p.at] == '+' || p.in[p.at] == '-' {
			p.at++
		}
		if !digits() {
			return nil, errRef
		}
	}
	return refNumber(p.in[start:p.at]), nil
}
