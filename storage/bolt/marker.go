package bolt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Names in a store's folder.
const (
	fileData   = "onced.db"
	fileMarker = "STORE"
	suffixNew  = ".new" // of a file that is being made
)

// marker is what the folder says about its data file.
type marker struct {
	format     uint32
	generation uint64
	sequence   uint64 // of a commit that the file has; 0: Init was not finished
}

// markerText is the marker as a file. The first line is for people.
const markerText = "This folder is a store of onced: keep this file with " + fileData + ", and copy neither alone.\n" +
	"format %d\ngeneration %d\nsequence %d\n"

// greatestMarker is far above the length of any marker.
const greatestMarker = 4096

// readMarker reads the marker of a folder; the error is [fs.ErrNotExist] if there
// is none.
func readMarker(dir string) (marker, error) {
	f, err := openRegular(filepath.Join(dir, fileMarker), os.O_RDONLY)
	if kind := irregular(0); errors.As(err, &kind) {
		return marker{}, markerDamage(dir, kind)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return marker{}, err
	}
	var text []byte
	if err == nil {
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(f, greatestMarker))
	}
	if err != nil {
		return marker{}, openError(filepath.Join(dir, fileMarker), err)
	}
	var m marker
	n, err := fmt.Sscanf(string(text), markerText, &m.format, &m.generation, &m.sequence)
	if err != nil && (n == 0 || m.format <= format) || len(text) == greatestMarker { // what a later format adds does not matter
		return marker{}, markerDamage(dir, errors.New("it is not what `onced init` or `onced serve` wrote there"))
	}
	return m, nil
}

// write replaces the marker of a folder, durably and at once. On a disk that has no
// room for another file it is written over: it lies within one sector.
func (m marker) write(dir string) error {
	name := filepath.Join(dir, fileMarker)
	err := writeFile(name+suffixNew, os.O_CREATE|os.O_TRUNC, m.text())
	switch {
	case err == nil:
		err = os.Rename(name+suffixNew, name)
	case wantsRoom(err):
		_ = os.Remove(name + suffixNew)
		err = m.overwrite(dir)
	}
	return errors.Join(err, syncDir(dir))
}

// overwrite writes over the marker of a folder, which is there and not longer.
func (m marker) overwrite(dir string) error {
	return writeFile(filepath.Join(dir, fileMarker), 0, m.text())
}

func (m marker) text() []byte {
	return fmt.Appendf(nil, markerText, m.format, m.generation, m.sequence)
}

// writeFile writes a file from its beginning, durably but for its name.
func writeFile(name string, flag int, content []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|flag, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// exists reports whether there is something under a name, be it a link to nothing.
func exists(name string) (bool, error) {
	_, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
