package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
)

// tokenEnv names the variable that may hold a claim token in standard base64.
// A token never stands on the command line, where other users could read it.
const tokenEnv = "ONCED_TOKEN"

// ticket is the content of a token file: what is needed to report on a claim.
// The fence is absent until the claim was answered; it is above 2^53, so JSON
// carries it as a string.
type ticket struct {
	ClaimToken []byte `json:"claim_token"`
	Fence      uint64 `json:"fence,string,omitempty"`
}

// claimTicket finds the token for a claim, or mints one: from the file, which
// is made if it is absent, else from the environment. kept is false when the
// token ends with this process, so that nobody can ever report on the claim.
func claimTicket(path string) (t ticket, kept bool, err error) {
	inherited, set := os.LookupEnv(tokenEnv)
	switch {
	case path != "" && set:
		return ticket{}, false, fmt.Errorf("--token-file and %s are both given; one token is enough", tokenEnv)
	case path != "":
		t, err = openTicket(path)
		return t, true, err
	case set:
		t.ClaimToken, err = base64.StdEncoding.DecodeString(inherited)
		if err == nil {
			err = onced.ValidateToken(t.ClaimToken)
		}
		if err != nil { // the inner error could show a part of the token
			return ticket{}, false, fmt.Errorf("%s is not a claim token: it needs %d-%d bytes in standard base64",
				tokenEnv, onced.MinToken, onced.MaxToken)
		}
		return t, true, nil
	default:
		return mintTicket(), false, nil
	}
}

func mintTicket() ticket {
	return ticket{ClaimToken: client.NewToken()}
}

// openTicket reads the file, or makes it with a new token. The file is there
// before the claim is sent: a token that is lost with a crash leaves a claim
// that can only lapse.
func openTicket(path string) (ticket, error) {
	t := mintTicket()
	err := createFile(path, 0o600, t.encode())
	if errors.Is(err, fs.ErrExist) {
		return readTicket(path)
	}
	return t, err
}

// readTicket reads a token file that must exist.
func readTicket(path string) (ticket, error) {
	var t ticket
	b, err := os.ReadFile(path)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(b, &t); err != nil || onced.ValidateToken(t.ClaimToken) != nil {
		return ticket{}, fmt.Errorf("%s is not a token file; `once claim --token-file` makes one", path)
	}
	return t, nil
}

// heldTicket reads the ticket of a claim that was answered.
func heldTicket(path string) (ticket, error) {
	t, err := readTicket(path)
	if err == nil && t.Fence == 0 {
		err = fmt.Errorf("%s has no fence yet: its claim was not granted; run `once claim` with it first", path)
	}
	return t, err
}

// store puts the ticket into its file.
func (t ticket) store(path string) error {
	return replaceFile(path, 0o600, t.encode())
}

func (t ticket) encode() []byte {
	b, _ := json.Marshal(t) // of bytes and a number: never fails
	return append(b, '\n')
}
