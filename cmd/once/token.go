package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
)

// tokenEnv names the variable that may hold a claim token in standard base64.
// A token never stands on the command line, where other users could read it.
const tokenEnv = "ONCED_TOKEN"

// ticket is the content of a token file: what is needed to report on a claim, and to
// ask for another one. The fence is absent until the claim was answered as held; it
// is above 2^53, so JSON carries it as a string.
type ticket struct {
	ClaimToken []byte `json:"claim_token"`
	Fence      uint64 `json:"fence,string,omitempty"`
	// NextToken is for a claim after the one that was answered, whose holder may have
	// begun to execute: under its own token it would be granted a second time.
	NextToken []byte `json:"next_claim_token,omitempty"`
}

// asked is the token to claim under: one whose claim has never been answered as
// held. nil: there is none.
func (t ticket) asked() []byte {
	if t.Fence == 0 {
		return t.ClaimToken
	}
	return t.NextToken
}

// openTicket is the ticket of a claim that is to be sent.
type openTicket struct {
	ticket
	file string   // the token file; "" if there is none
	lock *os.File // held until close: of two runs with one file, the second sees what the first was answered
	kept bool     // whether the token outlives this process
}

// findTicket finds the token for a claim, or mints one: from the file, which is made
// if it is absent, else from the environment. The ticket must be closed.
func findTicket(file string) (*openTicket, error) {
	inherited, set := os.LookupEnv(tokenEnv)
	switch {
	case file != "" && set:
		return nil, fmt.Errorf("--token-file and %s are both given; one token is enough", tokenEnv)
	case file != "":
		t, err := ticketFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("--token-file %s: %w", file, err)
		}
		return t, nil
	case set:
		token, err := base64.StdEncoding.DecodeString(inherited)
		if err != nil || onced.ValidateToken(token) != nil { // their errors could show a part of the token
			return nil, fmt.Errorf("%s is not a claim token: it needs %d-%d bytes in standard base64",
				tokenEnv, onced.MinToken, onced.MaxToken)
		}
		return &openTicket{ticket: ticket{ClaimToken: token}, kept: true}, nil
	default:
		return &openTicket{ticket: ticket{ClaimToken: client.NewToken()}}, nil
	}
}

// ticketFromFile locks the token file, and mints the token to claim under where the
// file has none. It is in the file before the claim is sent: an answer that is lost
// is had by asking again under the same token, and one that is lost with a crash
// would leave a claim that can only lapse.
func ticketFromFile(file string) (*openTicket, error) {
	for {
		lock, err := lockFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err := createFile(file, ticketMode, ticket{ClaimToken: client.NewToken()}.encode())
			if err != nil && (!errors.Is(err, fs.ErrExist) || isLink(file)) { // a link to nothing is there and is not
				return nil, err
			}
			continue
		case err != nil:
			return nil, err
		}
		t, err := decodeTicket(lock)
		if err == nil && t.asked() != nil {
			return &openTicket{ticket: t, file: file, lock: lock, kept: true}, nil
		}
		if err == nil {
			t.NextToken = client.NewToken()
			err = replaceFile(file, ticketMode, t.encode())
		}
		if err := errors.Join(err, lock.Close()); err != nil {
			return nil, err
		}
	}
}

// held keeps the fence of the claim, which was answered as held: from now on the
// file is for reporting on it.
func (o *openTicket) held(fence uint64) error {
	t := ticket{ClaimToken: o.asked(), Fence: fence}
	if o.file == "" {
		return nil
	}
	return replaceFile(o.file, ticketMode, t.encode())
}

func (o *openTicket) close() {
	if o.lock != nil {
		_ = o.lock.Close() // it was only read
	}
}

// ticketMode keeps others than its owner from reporting in the holder's name.
const ticketMode fs.FileMode = 0o600

// heldTicket reads the ticket of a claim that was answered.
func heldTicket(file string) (ticket, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return ticket{}, fmt.Errorf("--token-file %s is not there: name the file that the claim was made with by `once claim --token-file`", file)
	}
	if err != nil {
		return ticket{}, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	t, err := decodeTicket(f)
	if err == nil && t.Fence == 0 {
		err = fmt.Errorf("%s has no fence yet: its claim was not granted; run `once claim` with it first", file)
	}
	return t, err
}

// decodeTicket reads a token file.
func decodeTicket(f *os.File) (t ticket, err error) {
	info, err := f.Stat()
	if err != nil {
		return t, err
	}
	if mode := info.Mode().Perm(); mode&^ticketMode != 0 {
		return t, fmt.Errorf("%s can be used by others (mode %04o), and who has its token can report in your name: run `chmod 600 %s`", f.Name(), mode, f.Name())
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(b, &t); err != nil || onced.ValidateToken(t.ClaimToken) != nil || t.NextToken != nil && onced.ValidateToken(t.NextToken) != nil {
		return ticket{}, fmt.Errorf("%s is not a token file; `once claim --token-file` makes one", f.Name())
	}
	return t, nil
}

func (t ticket) encode() []byte {
	b, _ := json.Marshal(t) // of bytes and a number: never fails
	return append(b, '\n')
}
